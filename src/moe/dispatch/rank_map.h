// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a transport are numbered: tp ranks; expert rank = rank / moe_tp; data-parallel
// group = rank / (tp / dp).
#ifndef HALFBYTE_MOE_DISPATCH_RANK_MAP_H_
#define HALFBYTE_MOE_DISPATCH_RANK_MAP_H_

#include <cstdint>
#include <span>

#include "moe/dispatcher.h"

namespace halfbyte {

/// Ranks inside one expert: they hold parts of the same experts.
inline int moe_tp_size(const DispatchPlan& plan) {
  return plan.tp_size / plan.ep_size;
}
/// Ranks of one data-parallel group: they hold the same tokens.
inline int dp_group_size(const DispatchPlan& plan) {
  return plan.tp_size / plan.dp_size;
}
inline int dp_group(const DispatchPlan& plan, int rank) {
  return rank / dp_group_size(plan);
}

/// kInvalidArgument unless the sizes divide and the rank exists; the remedy is in the message.
Status check_rank_map(const DispatchPlan& plan);

/// kInvalidArgument unless the transport connects the plan's ranks.
Status check_transport(const DispatchPlan& plan, const Transport* transport);

/// kInvalidArgument unless `tokens_per_rank` lists dp_size counts, this rank's own being
/// `num_tokens`. Every rank is given the same list, so all of them decide alike.
Status check_token_counts(const DispatchPlan& plan,
                          std::span<const std::int64_t> tokens_per_rank,
                          std::int64_t num_tokens);

/// True when the ids [top_k] name an expert of expert rank `ep_rank`.
bool has_expert_on(const DispatchPlan& plan, const std::int32_t* topk_idx, int ep_rank);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_RANK_MAP_H_
