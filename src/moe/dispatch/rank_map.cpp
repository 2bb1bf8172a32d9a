// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/rank_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/reference/combine.h"

namespace halfbyte {

Status check_rank_map(const DispatchPlan& plan) {
  const bool divides = plan.tp_size > 0 && plan.ep_size > 0 && plan.dp_size > 0 &&
                       plan.tp_size % plan.ep_size == 0 && plan.tp_size % plan.dp_size == 0;
  if (!divides) {
    return {StatusCode::kInvalidArgument,
            fmt::format("ep and dp must divide tp, got tp {} ep {} dp {}", plan.tp_size,
                        plan.ep_size, plan.dp_size)};
  }
  if (plan.rank >= 0 && plan.rank < plan.tp_size) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("rank {} of {} does not exist", plan.rank, plan.tp_size)};
}

Status check_transport(const DispatchPlan& plan, const Transport* transport) {
  if (transport == nullptr) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} needs a transport between {} ranks, got none", plan.dispatcher,
                        plan.tp_size)};
  }
  if (transport->num_ranks() == plan.tp_size && transport->rank() == plan.rank) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("the plan is for rank {} of {}, the transport is rank {} of {}", plan.rank,
                      plan.tp_size, transport->rank(), transport->num_ranks())};
}

Status check_token_counts(const DispatchPlan& plan,
                          std::span<const std::int64_t> tokens_per_rank,
                          std::int64_t num_tokens) {
  if (plan.dp_size == 1 && tokens_per_rank.empty()) return {};  // nobody else's to know
  if (tokens_per_rank.size() != static_cast<std::size_t>(plan.dp_size)) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("tokens_per_rank must list the tokens of all {} data-parallel ranks, got {} "
                    "numbers",
                    plan.dp_size, tokens_per_rank.size())};
  }
  const bool negative = std::ranges::any_of(tokens_per_rank, [](std::int64_t t) { return t < 0; });
  const auto own = static_cast<std::size_t>(dp_group(plan, plan.rank));
  if (!negative && tokens_per_rank[own] == num_tokens) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("tokens_per_rank is [{}], x of data-parallel rank {} has {} rows",
                      fmt::join(tokens_per_rank, ", "), own, num_tokens)};
}

bool has_expert_on(const DispatchPlan& plan, const std::int32_t* topk_idx, int ep_rank) {
  const std::int64_t experts = plan.spec.num_experts;
  const std::int64_t begin = reference::first_expert_of(ep_rank, experts, plan.ep_size);
  const std::int64_t end = reference::first_expert_of(ep_rank + 1, experts, plan.ep_size);
  return std::any_of(topk_idx, topk_idx + plan.spec.top_k, [=](std::int64_t expert_idx) {
    return expert_idx >= begin && expert_idx < end;
  });
}

}  // namespace halfbyte
