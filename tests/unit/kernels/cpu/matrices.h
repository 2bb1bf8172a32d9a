// SPDX-License-Identifier: Apache-2.0
//
// Random canonical matrices of every format, and the exact answer of a product with one.
#ifndef HALFBYTE_TESTS_UNIT_KERNELS_CPU_MATRICES_H_
#define HALFBYTE_TESTS_UNIT_KERNELS_CPU_MATRICES_H_

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/checked.h"
#include "formats/bf16.h"
#include "formats/convert.h"
#include "formats/f16.h"
#include "halfbyte/moe.h"

namespace halfbyte::test {

/// A canonical matrix with the memory it looks at.
struct OwnedMatrix {
  CanonicalMatrix view;
  std::vector<std::uint8_t> codes, block_scale;
  std::vector<float> scale;
};

struct MatrixShape {
  WeightFormat format = WeightFormat::kNvfp4;
  std::int64_t rows = 0, cols = 0;
  std::int64_t scale_block_rows = 128, scale_block_cols = 128;  // kFp8
};

inline std::uint8_t random_e4m3(std::mt19937& rng) {
  const auto bits = static_cast<std::uint8_t>(rng() & 0xFFU);
  return (bits & 0x7FU) == 0x7FU ? 0x38 : bits;
}

inline void append_element(WeightFormat format, float value, std::vector<std::uint8_t>& bytes) {
  std::uint8_t raw[4] = {};
  if (format == WeightFormat::kF32) {
    std::memcpy(raw, &value, 4);
    bytes.insert(bytes.end(), raw, raw + 4);
    return;
  }
  const std::uint16_t half = format == WeightFormat::kBf16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(raw, &half, 2);
  bytes.insert(bytes.end(), raw, raw + 2);
}

/// Every code, and block scales from the smallest subnormal to 448.
inline OwnedMatrix random_matrix(const MatrixShape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  OwnedMatrix m;
  m.view.format = shape.format;
  m.view.rows = shape.rows;
  m.view.cols = shape.cols;
  if (shape.format == WeightFormat::kNvfp4) {
    m.codes.resize(static_cast<std::size_t>(shape.rows * shape.cols / 2));
    m.block_scale.resize(static_cast<std::size_t>(shape.rows * shape.cols / 16));
    for (std::uint8_t& byte : m.codes)
      byte = static_cast<std::uint8_t>(rng() & 0xFFU);
    for (std::uint8_t& byte : m.block_scale)
      byte = static_cast<std::uint8_t>(rng() % 0x7FU);
    m.view.global_scale = 0.0625F;
  } else if (shape.format == WeightFormat::kFp8) {
    for (std::int64_t i = 0; i < shape.rows * shape.cols; ++i)
      m.codes.push_back(random_e4m3(rng));
    m.view.scale_block_rows = shape.scale_block_rows;
    m.view.scale_block_cols = shape.scale_block_cols;
    const std::int64_t num_scales =
        ceil_div(shape.rows, shape.scale_block_rows) * ceil_div(shape.cols, shape.scale_block_cols);
    for (std::int64_t i = 0; i < num_scales; ++i)
      m.scale.push_back(0.5F + static_cast<float>(rng() % 1000U) * 0.001F);
  } else {
    for (std::int64_t i = 0; i < shape.rows * shape.cols; ++i)
      append_element(shape.format, normal(rng), m.codes);
  }
  m.view.codes = m.codes;
  m.view.block_scale = m.block_scale;
  m.view.scale = m.scale;
  return m;
}

inline std::vector<float> random_rows(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows * cols));
  for (float& value : x)
    value = normal(rng);
  return x;
}

/// An element of a product in fp64, and S = sum |x||w| of the bound in docs/numerics.md.
struct ExactDot {
  double value = 0;
  double magnitude = 0;
};

inline ExactDot exact_dot(const float* w, const float* x, std::int64_t cols) {
  ExactDot dot;
  for (std::int64_t col = 0; col < cols; ++col) {
    const double product = static_cast<double>(w[col]) * static_cast<double>(x[col]);
    dot.value += product;
    dot.magnitude += product < 0 ? -product : product;
  }
  return dot;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_KERNELS_CPU_MATRICES_H_
