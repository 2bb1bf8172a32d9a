// SPDX-License-Identifier: Apache-2.0
//
// Which routes a rank computes, and in which order: (expert, token, slot), by a counting sort, so
// that the order never depends on arrival, on threads or on what a buffer held before.
#ifndef HALFBYTE_MOE_DISPATCH_GROUPING_H_
#define HALFBYTE_MOE_DISPATCH_GROUPING_H_

#include <cstdint>
#include <span>

#include "weights/sharding.h"

namespace halfbyte {

/// Where the groups are written; the caller's memory, any previous content.
struct RouteGroups {
  std::int64_t* expert_offset = nullptr;  // [L + 1]
  std::int32_t* expert_count = nullptr;   // [L]
  std::int32_t* route_row = nullptr;      // [num_rows * top_k] at most: the row of each route
  std::int64_t* slot_route = nullptr;     // [num_rows, top_k]: the route of each slot, -1: not here
};

/// Groups the routes of topk_idx [num_rows, top_k] whose expert lies in the shard. Every other id,
/// whatever its value, is no route here and touches no memory. Returns the number of routes.
std::int64_t group_routes(std::span<const std::int32_t> topk_idx,
                          std::int64_t top_k,
                          const ExpertShard& shard,
                          const RouteGroups& groups);

/// Entries that name no expert: -1, or any id outside [0, num_experts).
std::int64_t count_dropped_routes(std::span<const std::int32_t> topk_idx, std::int64_t num_experts);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_GROUPING_H_
