// SPDX-License-Identifier: Apache-2.0
//
// Router logits to experts and weights (nvfp4-moe 7), equal bit for bit to
// kernels/reference/router, for every method. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_ROUTE_ROWS_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_ROUTE_ROWS_H_

#include <cstdint>

#include "halfbyte/moe.h"

struct CUstream_st;

namespace halfbyte::cuda {

/// What a RouterSpec comes to.
struct RouteRowsShape {
  std::int64_t num_tokens = 0;
  std::int64_t num_experts = 0;  // at most 1024
  std::int64_t top_k = 0;        // at most 64
  RoutingMethod method = RoutingMethod::kSoftmaxRenorm;
  bool softmax = true;  // p over all experts, which are chosen by logit; else p of each by itself
  bool renormalize = true;
  int num_groups = 1;  // 1: no groups
  int topk_group = 1;
  float scale = 1.0F;  // of the weights, at the end
};

/// Device pointers.
struct RouteRowsArgs {
  const float* logits = nullptr;     // [num_tokens, num_experts]
  std::int64_t logits_stride = 0;    // values from row to row
  const float* bias = nullptr;       // [num_experts], added for selection; null: none
  std::int32_t* topk_idx = nullptr;  // [num_tokens, top_k]; -1 in a row without a finite logit
  float* topk_weights = nullptr;     // [num_tokens, top_k]; 0 in such a row
};

/// Ok, or what is wanted and what came. Pure.
Status can_run(const RouteRowsShape& shape);
/// Enqueues and returns; nothing for zero tokens.
Status launch(const RouteRowsShape& shape, const RouteRowsArgs& args, CUstream_st* stream);

/// Shared memory of one row.
constexpr std::int64_t route_row_bytes(const RouteRowsShape& shape) {
  return 4 * (2 * shape.num_experts + shape.num_groups);
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_ROUTE_ROWS_H_
