// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cmath>

#include "device_data.h"
#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/sm90_layout.h"
#include "kernels/cuda/common/nvfp4_decode.cuh"

namespace halfbyte {
namespace {

using test::DeviceArray;

__global__ void decode_kernel(const std::uint32_t* words,
                              const std::uint32_t* scales,
                              std::uint32_t* out) {
  const std::uint32_t s = scales[blockIdx.x];
  std::uint32_t a[4];
  cuda::decode_step(words[threadIdx.x], cuda::scale_pair(s, 0), cuda::scale_pair(s, 1), a);
  for (int i = 0; i < 4; ++i)
    out[(blockIdx.x * blockDim.x + threadIdx.x) * 4 + i] = a[i];
}

// Every code in each of the eight places of a word, times every scale: the decoder yields the exact
// product times 2^-8. Expected values from the formats' tables, in fp64.
TEST(Nvfp4Decode, IsExactForEveryCodeAndScale) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  std::vector<std::uint32_t> words;
  for (int place = 0; place < 8; ++place) {
    for (unsigned code = 0; code < 16; ++code)
      words.push_back(sm90::place_code(place, code) | sm90::place_code((place + 3) % 8, 5));
  }
  std::vector<std::uint32_t> scales;
  for (unsigned e4m3 = 0; e4m3 < 0x7F; ++e4m3) {
    const std::uint32_t row = sm90::encode_scale(static_cast<std::uint8_t>(e4m3));
    const std::uint32_t below = sm90::encode_scale(static_cast<std::uint8_t>(0x7E - e4m3));
    scales.push_back(row | below << 8 | 0xFFFF0000U);
  }
  const DeviceArray<std::uint32_t> device_words(words, stream);
  const DeviceArray<std::uint32_t> device_scales(scales, stream);
  const DeviceArray<std::uint32_t> out(words.size() * scales.size() * 4, stream);
  decode_kernel<<<static_cast<unsigned>(scales.size()), static_cast<unsigned>(words.size()), 0,
                  stream.handle()>>>(device_words.data(), device_scales.data(), out.data());
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  const std::vector<std::uint32_t> got = out.download();
  int wrong = 0;
  for (std::size_t s = 0; s < scales.size(); ++s) {
    for (std::size_t w = 0; w < words.size(); ++w) {
      for (int code = 0; code < 8; ++code) {
        // Codes 0..3 are row r: registers 0 and 2; 4..7 row r + 8: registers 1 and 3.
        const int reg = code / 4 + code % 4 / 2 * 2;
        const std::uint32_t pair = got[(s * words.size() + w) * 4 + static_cast<std::size_t>(reg)];
        const auto half = static_cast<std::uint16_t>(pair >> (code % 2 * 16));
        const auto e4m3 = static_cast<std::uint8_t>(code < 4 ? s : 0x7E - s);
        const auto value = static_cast<std::uint8_t>(sm90::read_code(words[w], code));
        const double want = static_cast<double>(e2m1_to_f32(value)) * e4m3_to_f32(e4m3);
        const bool zero_scale = e4m3 == 0;  // preparation writes code 0 there
        wrong += !zero_scale && std::ldexp(static_cast<double>(bf16_to_f32(half)), 8) != want;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halfbyte
