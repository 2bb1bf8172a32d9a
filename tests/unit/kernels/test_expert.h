// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_UNIT_KERNELS_TEST_EXPERT_H_
#define HALFBYTE_TESTS_UNIT_KERNELS_TEST_EXPERT_H_

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "formats/nvfp4.h"
#include "halfbyte/moe.h"
#include "kernels/reference/expert.h"

namespace halfbyte::test {

/// An NVFP4 expert that owns its bytes; `view` stays valid while it lives.
class TestExpert {
 public:
  CanonicalExpert view;

  TestExpert() = default;
  TestExpert(const TestExpert&) = delete;
  TestExpert& operator=(const TestExpert&) = delete;

  /// Gaussian weights, quantised offline with their own global scales.
  static void fill_random(TestExpert& expert,
                          std::int64_t hidden,
                          std::int64_t intermediate,
                          bool gated,
                          unsigned seed) {
    std::mt19937 random(seed);
    if (gated) expert.view.gate = expert.random_matrix(intermediate, hidden, random);
    expert.view.up = expert.random_matrix(intermediate, hidden, random);
    expert.view.down = expert.random_matrix(hidden, intermediate, random);
  }

  /// Every element has the same code and every block the same scale.
  CanonicalMatrix constant_matrix(std::int64_t rows,
                                  std::int64_t cols,
                                  std::uint8_t code,
                                  std::uint8_t block_scale) {
    CanonicalMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = keep(rows * cols / 2, static_cast<std::uint8_t>(code | (code << 4)));
    matrix.block_scale = keep(rows * cols / 16, block_scale);
    return matrix;
  }

  CanonicalMatrix random_matrix(std::int64_t rows, std::int64_t cols, std::mt19937& random) {
    std::normal_distribution<float> normal(0.0F, 0.05F);
    std::vector<float> w(static_cast<std::size_t>(rows * cols));
    for (float& value : w)
      value = normal(random);
    return quantized(w, rows, cols);
  }

  CanonicalMatrix quantized(const std::vector<float>& w, std::int64_t rows, std::int64_t cols) {
    CanonicalMatrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.global_scale = weight_global_scale(w);
    std::vector<std::uint8_t>& codes = keep(rows * cols / 2, 0);
    std::vector<std::uint8_t>& scales = keep(rows * cols / 16, 0);
    const Status status = quantize_weights(w, rows, cols, matrix.global_scale, codes, scales);
    if (status.ok()) {
      matrix.codes = codes;
      matrix.block_scale = scales;
    }
    return matrix;
  }

  std::vector<std::uint8_t>& keep(std::int64_t count, std::uint8_t value) {
    return bytes_.emplace_back(static_cast<std::size_t>(count), value);
  }

  /// The weights' own global scales, with the activation scales given.
  reference::ExpertScalars scalars(float s1 = 1.0F, float s2 = 1.0F) const {
    return {view.gate.global_scale, view.up.global_scale, view.down.global_scale, s1, s2};
  }

 private:
  std::deque<std::vector<std::uint8_t>> bytes_;
};

inline std::vector<float> random_row(std::int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<std::size_t>(size));
  for (float& value : row)
    value = normal(random);
  return row;
}

/// Blocks of [6, 2, 0 x 14]: with s = 1 they quantise exactly, with scale 1, and each sums to 8.
inline std::vector<float> exact_row(std::int64_t size) {
  std::vector<float> row(static_cast<std::size_t>(size), 0.0F);
  for (std::size_t i = 0; i < row.size(); i += 16) {
    row[i] = 6.0F;
    row[i + 1] = 2.0F;
  }
  return row;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_KERNELS_TEST_EXPERT_H_
