// SPDX-License-Identifier: Apache-2.0
//
// w4a8: NVFP4 weights folded into E4M3, and activations in E4M3 per 128 columns (docs/numerics.md).
#ifndef HALFBYTE_FORMATS_E4M3_FOLD_H_
#define HALFBYTE_FORMATS_E4M3_FOLD_H_

#include <cstdint>

namespace halfbyte {

inline constexpr std::int64_t kE4m3BlockCols = 128;

/// What folding one weight row did.
struct E4m3Fold {
  int exponent = 0;                     // p: multiply the row's result by 2^-p
  std::int64_t num_inexact_blocks = 0;  // blocks of 16 with a value that E4M3 cannot hold
};

/// Folds one NVFP4 row, codes [cols / 2] and block_scale [cols / 16], into dst [cols]:
/// E4M3_RN(e2m1 * e4m3 * 2^p) with the largest p that keeps 6 * max(block_scale) * 2^p <= 448; an
/// all-zero row has p = 0.
E4m3Fold fold_row_to_e4m3(const std::uint8_t* codes,
                          const std::uint8_t* block_scale,
                          std::int64_t cols,
                          std::uint8_t* dst);

/// Quantises one row of activations x [cols] to codes [cols] with one scale per 128 columns, scale
/// [ceil(cols / 128)] = amax / 448 over the block's finite values. amax < 2^-100 gives scale 0 and
/// zeros; a value that is not finite becomes E4M3 NaN and leaves its neighbours alone.
void quantize_row_to_e4m3(const float* x, std::int64_t cols, std::uint8_t* codes, float* scale);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_E4M3_FOLD_H_
