// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_ROUTER_H_
#define HALFBYTE_MOE_ROUTER_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"

struct CUstream_st;

namespace halfbyte {

/// Why `spec` cannot route `num_experts` experts to `top_k`, or ok (nvfp4-moe 7: groups, k).
Status check_router(const RouterSpec& spec, std::int64_t num_experts, std::int64_t top_k);

/// Routes every row of fp32 logits [T, E]. Unroutable rows report ids 0..k-1 and weights 0 and are
/// counted; their ids must be taken as -1 when routes are grouped, which `route` does by writing -1
/// when `mark_unroutable` is set.
Result<std::int64_t> route(const RouterSpec& spec,
                           ConstMatrixView logits,
                           std::span<const float> bias,
                           std::int64_t top_k,
                           bool mark_unroutable,
                           std::span<std::int32_t> topk_idx,
                           std::span<float> topk_weights);

/// The same of logits on a CUDA device, where the other views are as well; unroutable rows get ids
/// of -1, and nobody counts them. Enqueues and returns.
Status route_on_device(const RouterSpec& spec,
                       ConstMatrixView logits,
                       std::span<const float> bias,
                       std::int64_t top_k,
                       std::span<std::int32_t> topk_idx,
                       std::span<float> topk_weights,
                       CUstream_st* stream);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_ROUTER_H_
