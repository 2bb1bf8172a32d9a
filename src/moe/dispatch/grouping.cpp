// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/grouping.h"

#include <algorithm>

namespace halfbyte {
namespace {

// The local number of an expert, or -1. 64-bit arithmetic: an id near 2^31 must not wrap.
std::int64_t local_expert(std::int32_t expert_idx, const ExpertShard& shard) {
  const std::int64_t local = std::int64_t{expert_idx} - shard.first_expert;
  return expert_idx >= 0 && local >= 0 && local < shard.num_local_experts ? local : -1;
}

void count_routes(std::span<const std::int32_t> topk_idx,
                  const ExpertShard& shard,
                  const RouteGroups& groups) {
  std::fill_n(groups.expert_count, shard.num_local_experts, 0);
  for (const std::int32_t expert_idx : topk_idx) {
    const std::int64_t expert = local_expert(expert_idx, shard);
    if (expert >= 0) ++groups.expert_count[expert];
  }
  groups.expert_offset[0] = 0;
  for (std::int64_t expert = 0; expert < shard.num_local_experts; ++expert) {
    groups.expert_offset[expert + 1] = groups.expert_offset[expert] + groups.expert_count[expert];
  }
}

}  // namespace

std::int64_t group_routes(std::span<const std::int32_t> topk_idx,
                          std::int64_t top_k,
                          const ExpertShard& shard,
                          const RouteGroups& groups) {
  count_routes(topk_idx, shard, groups);
  // The counts are counted up again: during the second pass they are each expert's cursor.
  std::fill_n(groups.expert_count, shard.num_local_experts, 0);
  for (std::size_t i = 0; i < topk_idx.size(); ++i) {
    const std::int64_t expert = local_expert(topk_idx[i], shard);
    groups.slot_route[i] = -1;
    if (expert < 0) continue;
    const std::int64_t route = groups.expert_offset[expert] + groups.expert_count[expert]++;
    groups.route_row[route] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / top_k);
    groups.slot_route[i] = route;
  }
  return groups.expert_offset[shard.num_local_experts];
}

std::int64_t count_dropped_routes(std::span<const std::int32_t> topk_idx,
                                  std::int64_t num_experts) {
  return std::ranges::count_if(topk_idx, [num_experts](std::int32_t expert_idx) {
    return expert_idx < 0 || expert_idx >= num_experts;
  });
}

}  // namespace halfbyte
