// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_CONVERT_H_
#define HALFBYTE_FORMATS_CONVERT_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"
#include "halfbyte/tensor_view.h"

namespace halfbyte {

/// Widens `count` elements of kF32, kF16, kBf16 or kF8E4m3 (unscaled) to fp32; exact. `src` may be
/// unaligned.
void widen_to_f32(DType dtype, const void* src, std::int64_t count, float* dst);

/// Rounds fp32 to kF32, kF16 or kBf16, nearest even.
void narrow_from_f32(DType dtype, const float* src, std::int64_t count, void* dst);

/// Row `row` of a canonical matrix as fp32 [cols]: every scale applied, one fp32 rounding
/// (e2m1 * e4m3 is exact, times the global scale rounds once).
void dequantize_row(const CanonicalMatrix& matrix, std::int64_t row, float* dst);

/// Row `row` without the global scale of kNvfp4: exact. For other formats the same as
/// dequantize_row.
void decode_row(const CanonicalMatrix& matrix, std::int64_t row, float* dst);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_CONVERT_H_
