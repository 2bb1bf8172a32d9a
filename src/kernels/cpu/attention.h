// SPDX-License-Identifier: Apache-2.0
//
// fp32 inner loops of attention over a paged cache. Every sum has a fixed order: 16 partial sums
// over a head's width, keys one after the other.
#ifndef HALFBYTE_KERNELS_CPU_ATTENTION_H_
#define HALFBYTE_KERNELS_CPU_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "halfbyte/dtype.h"

namespace halfbyte::cpu {

/// Columns [column, column + width) of a cache pool's rows; a view. Token t of the sequence is row
/// block_table[t / block_tokens] * block_tokens + t % block_tokens.
struct PagedRows {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;  // kF32, kBf16, or kF8E4m3 whose values are multiplied by scale
  float scale = 1.0F;
  std::int64_t row_width = 0;  // elements
  std::int64_t column = 0;
  std::int64_t width = 0;
  std::int64_t block_tokens = 0;
  std::span<const std::int32_t> block_table;
};

/// Query heads of one token that share their keys and values.
struct AttendTask {
  const float* q = nullptr;  // head h at q + h * q_stride, keys.width values
  std::int64_t q_stride = 0;
  float* out = nullptr;  // head h at out + h * out_stride, values.width values
  std::int64_t out_stride = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_keys = 0;  // > 0
  float scale = 1.0F;
  PagedRows keys;
  PagedRows values;
};

/// Floats of scratch that attend needs.
std::int64_t attend_scratch_floats(std::int64_t num_heads,
                                   std::int64_t num_keys,
                                   std::int64_t block_tokens,
                                   std::int64_t row_width);

/// out[h] = sum_t softmax_t(scale * q[h] . keys[t]) values[t].
void attend(const AttendTask& task, float* scratch);

/// A small matrix [rows, cols] of one head.
struct HeadMatrix {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;  // kF32 or kBf16
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// y [rows] = matrix x [cols].
void head_linear(const HeadMatrix& matrix, const float* x, float* y);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_ATTENTION_H_
