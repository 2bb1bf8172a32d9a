// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_GPU_EXPERT_DATA_H_
#define HALFBYTE_TESTS_GPU_EXPERT_DATA_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device_data.h"
#include "kernels/cuda/sm90/prepare_weights.h"
#include "layer_reference.h"

namespace halfbyte::test {

/// The same matrix of every expert: canonical on host and device, and prepared.
struct ExpertMatrix {
  sm90::WeightLayout layout;
  std::vector<std::uint8_t> host_codes, host_scales;  // [experts, rows, ..]
  DeviceArray<std::uint8_t> codes, scales, prepared;

  CanonicalOnDevice canonical() const {
    return {codes.data(), scales.data(),
            static_cast<int>(layout.shape.num_halves * layout.shape.half_rows),
            static_cast<int>(layout.shape.cols)};
  }
};

/// Random codes; random scales of 40 consecutive values, and with `awkward` also zero, the smallest
/// subnormal and the largest. `prepared` starts as 0xA5 bytes.
inline ExpertMatrix make_expert_matrix(const sm90::WeightLayout& layout,
                                       bool awkward,
                                       std::mt19937& random,
                                       const device::Stream& stream) {
  ExpertMatrix matrix;
  matrix.layout = layout;
  const sm90::WeightShape& s = layout.shape;
  const auto elements =
      static_cast<std::size_t>(s.num_experts * s.num_halves * s.half_rows * s.cols);
  matrix.host_codes.resize(elements / 2);
  for (std::uint8_t& byte : matrix.host_codes)
    byte = static_cast<std::uint8_t>(random());
  matrix.host_scales.resize(elements / 16);
  for (std::uint8_t& byte : matrix.host_scales) {
    byte = static_cast<std::uint8_t>(24 + random() % 40);
    const std::uint8_t rare[] = {0x00, 0x01, 0x7E, 0x05};
    if (awkward && random() % 50 == 0) byte = rare[random() % 4];
  }
  matrix.codes = DeviceArray<std::uint8_t>(matrix.host_codes, stream);
  matrix.scales = DeviceArray<std::uint8_t>(matrix.host_scales, stream);
  matrix.prepared = DeviceArray<std::uint8_t>(static_cast<std::size_t>(layout.bytes()), stream);
  matrix.prepared.poison(0xA5);
  const std::int64_t half_codes = s.half_rows * s.cols / 2;
  for (std::int64_t e = 0; e < s.num_experts; ++e) {
    sm90::PrepareWeightsArgs args;
    for (int half = 0; half < s.num_halves; ++half) {
      const std::int64_t part = e * s.num_halves + half;
      args.codes[half] = matrix.codes.data() + part * half_codes;
      args.block_scale[half] = matrix.scales.data() + part * half_codes / 8;
    }
    args.dst = matrix.prepared.data();
    EXPECT_TRUE(sm90::launch(layout, e, args, stream.handle()).ok());
  }
  EXPECT_TRUE(stream.synchronize().ok());
  return matrix;
}

/// What `prepared` must hold, by the layout's index functions.
inline std::vector<std::uint8_t> prepare_on_host(const ExpertMatrix& matrix) {
  const sm90::WeightShape& s = matrix.layout.shape;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(matrix.layout.bytes()));
  for (std::int64_t e = 0; e < s.num_experts; ++e) {
    for (int half = 0; half < s.num_halves; ++half) {
      for (std::int64_t row = 0; row < s.half_rows; ++row) {
        const std::int64_t base = ((e * s.num_halves + half) * s.half_rows + row) * s.cols;
        for (std::int64_t col = 0; col < s.cols; ++col) {
          const sm90::Element element = {e, half, row, col};
          const std::uint8_t scale =
              matrix.host_scales[static_cast<std::size_t>((base + col) / 16)];
          const std::uint8_t byte = matrix.host_codes[static_cast<std::size_t>((base + col) / 2)];
          const unsigned code = scale == 0 ? 0 : byte >> (col % 2 * 4) & 15;
          out[static_cast<std::size_t>(locate_scale(matrix.layout, element))] =
              sm90::encode_scale(scale);
          const sm90::CodeWord word = locate_code(matrix.layout, element);
          const std::uint32_t bits = sm90::place_code(word.code, code);
          for (std::int64_t b = 0; b < 4; ++b) {
            std::uint8_t& dst = out[static_cast<std::size_t>(word.byte + b)];
            dst = static_cast<std::uint8_t>(dst | (bits >> (8 * b) & 0xFF));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_EXPERT_DATA_H_
