// SPDX-License-Identifier: Apache-2.0
#include "formats/e4m3_fold.h"

#include <algorithm>
#include <cmath>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

/// The largest p with 6 * max_scale * 2^p <= 448.
int fold_exponent(float max_scale) {
  if (max_scale == 0.0F) return 0;
  int exponent = 0;
  // 448 / (6 * max_scale) = fraction * 2^exponent with fraction in [0.5, 1).
  std::frexp(kE4m3Max / (kE2m1Max * max_scale), &exponent);
  return exponent - 1;
}

float max_block_scale(const std::uint8_t* block_scale, std::int64_t num_blocks) {
  float max = 0.0F;
  for (std::int64_t block = 0; block < num_blocks; ++block)
    max = std::max(max, e4m3_to_f32(block_scale[block]));
  return max;
}

float finite_amax(const float* x, std::int64_t size) {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < size; ++i) {
    if (std::isfinite(x[i])) amax = std::max(amax, std::fabs(x[i]));
  }
  return amax;
}

std::uint8_t quantize_value(float x, float scale) {
  if (!std::isfinite(x)) return kE4m3Nan;
  return scale == 0.0F ? std::uint8_t{0} : f32_to_e4m3(x / scale);
}

}  // namespace

E4m3Fold fold_row_to_e4m3(const std::uint8_t* codes,
                          const std::uint8_t* block_scale,
                          std::int64_t cols,
                          std::uint8_t* dst) {
  const std::int64_t num_blocks = cols / kNvfp4BlockSize;
  E4m3Fold fold;
  fold.exponent = fold_exponent(max_block_scale(block_scale, num_blocks));
  for (std::int64_t block = 0; block < num_blocks; ++block) {
    const float scale = std::ldexp(e4m3_to_f32(block_scale[block]), fold.exponent);
    bool exact = true;
    for (std::int64_t col = block * kNvfp4BlockSize; col < (block + 1) * kNvfp4BlockSize; ++col) {
      const float value = e2m1_to_f32(e2m1_code_at(codes, col)) * scale;
      dst[col] = f32_to_e4m3(value);
      exact = exact && e4m3_to_f32(dst[col]) == value;
    }
    fold.num_inexact_blocks += exact ? 0 : 1;
  }
  return fold;
}

void quantize_row_to_e4m3(const float* x, std::int64_t cols, std::uint8_t* codes, float* scale) {
  for (std::int64_t first = 0; first < cols; first += kE4m3BlockCols) {
    const std::int64_t size = std::min(kE4m3BlockCols, cols - first);
    const float amax = finite_amax(x + first, size);
    const float block_scale = amax < 0x1p-100F ? 0.0F : amax / kE4m3Max;
    scale[first / kE4m3BlockCols] = block_scale;
    for (std::int64_t i = first; i < first + size; ++i)
      codes[i] = quantize_value(x[i], block_scale);
  }
}

}  // namespace halfbyte
