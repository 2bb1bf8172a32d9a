// SPDX-License-Identifier: Apache-2.0
//
// Weighs and sums the experts' rows in the fixed order of nvfp4-moe 9.5, equal bit for bit to
// kernels/reference/combine, and rounds once. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_H_

#include <cstdint>
#include <string>

#include "halfbyte/dtype.h"
#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::cuda {

struct CombineRowsShape {
  std::int64_t num_tokens = 0;
  int top_k = 0;                  // at most 64
  std::int64_t num_experts = 0;   // over all ranks: the order follows from it
  std::int64_t hidden_size = 0;   // a multiple of 16
  DType row_dtype = DType::kF32;  // kF32 or kBf16
  DType y_dtype = DType::kBf16;   // kF32, kBf16 or kF16
};

struct CombineRowsConfig {
  int columns_per_warp = 0;
  bool operator==(const CombineRowsConfig&) const = default;
  std::string to_string() const;
};

/// Device pointers.
struct CombineRowsArgs {
  const void* rows = nullptr;                      // [routes, hidden_size] of row_dtype
  const std::int32_t* topk_idx = nullptr;          // [num_tokens, top_k], global ids
  const float* topk_weights = nullptr;             // [num_tokens, top_k]
  const std::int32_t* slot_route = nullptr;        // [num_tokens, top_k]: row of a slot, or -1
  const std::int32_t* num_valid_tokens = nullptr;  // [1]; later tokens give zeros. Null: all valid
  const float* shared_rows = nullptr;              // [num_tokens, hidden_size], added last; or null
  void* y = nullptr;                               // [num_tokens, hidden_size] of y_dtype
};

Status can_run(const CombineRowsShape& shape);
CombineRowsConfig select_config(const CombineRowsShape& shape);
/// Enqueues and returns; nothing for zero tokens. A token without a route gives zeros.
Status launch(const CombineRowsShape& shape,
              const CombineRowsConfig& config,
              const CombineRowsArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_H_
