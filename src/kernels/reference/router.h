// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_REFERENCE_ROUTER_H_
#define HALFBYTE_KERNELS_REFERENCE_ROUTER_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"

namespace halfbyte::reference {

/// Whether selection adds the correction bias; the other methods ignore one.
bool router_uses_bias(RoutingMethod method);
/// Whether experts are dropped by groups.
bool router_has_groups(const RouterSpec& spec);
/// Whether p is over all experts, which are then chosen by logit.
bool router_scores_by_softmax(const RouterSpec& spec);
/// Whether the chosen weights are divided by their sum.
bool router_renormalizes(const RouterSpec& spec);

/// Why `spec` cannot route `num_experts` experts to `top_k`, or ok (groups, k).
Status check_router(const RouterSpec& spec, std::int64_t num_experts, std::int64_t top_k);

/// Routes one row. logits [E]; bias empty or [E]; topk_idx and topk_weights [k]. Slots descend in
/// selection score, equal scores take the lowest expert. NaN logits count as -inf, +inf as FLT_MAX;
/// a row without a finite logit gets ids 0..k-1 and weights 0 and returns false (unroutable).
/// Requires check_router(...).ok().
bool route_row(const RouterSpec& spec,
               std::span<const float> logits,
               std::span<const float> bias,
               std::span<std::int32_t> topk_idx,
               std::span<float> topk_weights);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_ROUTER_H_
