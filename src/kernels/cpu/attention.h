// SPDX-License-Identifier: Apache-2.0
//
// fp32 inner loops of attention over a paged cache. Every sum has a fixed order, the same on every
// machine and for every number of queries in a task: 16 partial sums over a head's width, keys one
// after the other.
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

/// Query heads of consecutive tokens of one sequence that share their keys and values: a block of
/// the cache is widened once for all of them.
struct AttendTask {
  const float* q = nullptr;  // keys.width values of token t, head h: at t * q_token_stride + ..
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  float* out = nullptr;  // values.width values of each
  std::int64_t out_token_stride = 0;
  std::int64_t out_head_stride = 0;
  std::int64_t num_tokens = 1;
  std::int64_t num_heads = 0;
  std::int64_t num_keys = 0;  // > 0: that the first token sees; each next one sees one more
  float scale = 1.0F;
  PagedRows keys;
  PagedRows values;

  std::int64_t most_keys() const { return num_keys + num_tokens - 1; }
};

/// Floats of scratch that attend needs for num_tokens * num_heads queries of at most num_keys keys.
std::int64_t attend_scratch_floats(std::int64_t num_queries,
                                   std::int64_t num_keys,
                                   std::int64_t block_tokens,
                                   std::int64_t row_width);

/// out[t, h] = sum_k softmax_k(scale * q[t, h] . keys[k]) values[k] over the keys that t sees. With
/// the best instruction set of this machine; the others are for tests, and give the same bits.
void attend(const AttendTask& task, float* scratch);
void attend_portable(const AttendTask& task, float* scratch);
void attend_avx2(const AttendTask& task, float* scratch);

/// A small matrix [rows, cols] of one head.
struct HeadMatrix {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;  // kF32 or kBf16
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// y [rows] = matrix x [cols].
void head_linear(const HeadMatrix& matrix, const float* x, float* y);
void head_linear_portable(const HeadMatrix& matrix, const float* x, float* y);
void head_linear_avx2(const HeadMatrix& matrix, const float* x, float* y);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_ATTENTION_H_
