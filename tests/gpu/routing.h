// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_GPU_ROUTING_H_
#define HALFBYTE_TESTS_GPU_ROUTING_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/common/group_rows.h"

namespace halfbyte::test {

enum class Spread { kRandom, kOneExpert, kMissing, kDuplicates, kSkewed };

/// ids [num_tokens, top_k] of a distribution; kMissing also has -1, too large and far negative ids.
inline std::vector<std::int32_t> make_ids(const cuda::GroupRowsShape& shape,
                                          Spread spread,
                                          std::mt19937& random) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.num_slots()));
  const auto experts = static_cast<std::uint32_t>(shape.num_experts);
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>(random() % experts);
    if (spread == Spread::kOneExpert) id = static_cast<std::int32_t>(shape.first_expert);
    if (spread == Spread::kDuplicates) id = static_cast<std::int32_t>(random() % 2);
    if (spread == Spread::kSkewed)
      id = static_cast<std::int32_t>((random() % experts) * (random() % experts) / experts);
    if (spread == Spread::kMissing && random() % 2 == 0) {
      const std::int32_t bad[] = {-1, static_cast<std::int32_t>(experts), -2147483647, 1 << 30};
      id = bad[random() % 4];
    }
  }
  return ids;
}

struct HostRoutes {
  std::vector<std::int64_t> expert_offset;
  std::vector<std::int32_t> expert_count, route_row, slot_route, route_expert;
};

/// The order of nvfp4-moe 9.2 by three plain loops.
inline HostRoutes group_on_host(const cuda::GroupRowsShape& shape,
                                const std::vector<std::int32_t>& ids,
                                std::int64_t num_valid) {
  HostRoutes routes;
  routes.slot_route.assign(ids.size(), -1);
  for (int expert = 0; expert < shape.num_local_experts; ++expert) {
    routes.expert_offset.push_back(static_cast<std::int64_t>(routes.route_row.size()));
    for (std::int64_t slot = 0; slot < num_valid * shape.top_k; ++slot) {
      if (ids[static_cast<std::size_t>(slot)] != shape.first_expert + expert) continue;
      routes.slot_route[static_cast<std::size_t>(slot)] =
          static_cast<std::int32_t>(routes.route_row.size());
      routes.route_row.push_back(static_cast<std::int32_t>(slot / shape.top_k));
      routes.route_expert.push_back(expert);
    }
    routes.expert_count.push_back(static_cast<std::int32_t>(
        static_cast<std::int64_t>(routes.route_row.size()) - routes.expert_offset.back()));
  }
  routes.expert_offset.push_back(static_cast<std::int64_t>(routes.route_row.size()));
  return routes;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_ROUTING_H_
