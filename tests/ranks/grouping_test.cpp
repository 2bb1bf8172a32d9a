// SPDX-License-Identifier: Apache-2.0
//
// Grouping of routes (nvfp4-moe 9.2): expected orders come from sorting (expert, position).
#include "moe/dispatch/grouping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace halfbyte {
namespace {

constexpr std::int32_t kLargestId = std::numeric_limits<std::int32_t>::max();

struct Grouped {
  std::vector<std::int64_t> expert_offset;
  std::vector<std::int32_t> expert_count;
  std::vector<std::int32_t> route_row;
  std::vector<std::int64_t> slot_route;
  std::int64_t num_routes = 0;
  bool operator==(const Grouped&) const = default;
};

Grouped group(const std::vector<std::int32_t>& ids,
              std::int64_t top_k,
              std::int64_t first_expert,
              std::int64_t num_local_experts,
              int poison = 0x7F) {
  Grouped grouped;
  grouped.expert_offset.resize(static_cast<std::size_t>(num_local_experts) + 1);
  grouped.expert_count.resize(static_cast<std::size_t>(num_local_experts) + 1);
  grouped.route_row.resize(ids.size() + 1);
  grouped.slot_route.resize(ids.size());
  const auto fill = [poison](auto& values) {
    if (!values.empty()) std::memset(values.data(), poison, values.size() * sizeof(values[0]));
  };
  fill(grouped.expert_offset);
  fill(grouped.expert_count);
  fill(grouped.route_row);
  fill(grouped.slot_route);
  grouped.num_routes = group_routes(ids, top_k, {first_expert, num_local_experts, 0, 16},
                                    {grouped.expert_offset.data(), grouped.expert_count.data(),
                                     grouped.route_row.data(), grouped.slot_route.data()});
  grouped.expert_count.pop_back();  // one past the end, to see that it is not read
  grouped.route_row.resize(static_cast<std::size_t>(grouped.num_routes));
  return grouped;
}

TEST(Grouping, OrdersByExpertTokenAndSlot) {
  const Grouped grouped = group({2, 0, 0, 2, 1, 2}, 2, 0, 3);
  EXPECT_EQ(grouped.expert_offset, (std::vector<std::int64_t>{0, 2, 3, 6}));
  EXPECT_EQ(grouped.expert_count, (std::vector<std::int32_t>{2, 1, 3}));
  EXPECT_EQ(grouped.route_row, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(grouped.slot_route, (std::vector<std::int64_t>{3, 0, 1, 4, 2, 5}));
}

TEST(Grouping, EqualsAStableSortForEveryShareAndCount) {
  std::mt19937 rng(1);
  for (const std::int64_t experts : {1, 3, 15, 17, 33, 36}) {
    for (const std::int64_t tokens : {0, 1, 31, 32, 33, 127, 128, 129}) {
      std::uniform_int_distribution<std::int32_t> id(-2, static_cast<std::int32_t>(2 * experts));
      std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * 3));
      for (std::int32_t& each : ids)
        each = id(rng);
      const std::int64_t first = experts / 2;
      const Grouped grouped = group(ids, 3, first, experts);
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] >= first && ids[i] < first + experts) order.push_back(i);
      }
      std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(ids[i], i); });
      ASSERT_EQ(grouped.num_routes, static_cast<std::int64_t>(order.size()));
      for (std::size_t route = 0; route < order.size(); ++route) {
        EXPECT_EQ(grouped.route_row[route], static_cast<std::int32_t>(order[route] / 3));
        EXPECT_EQ(grouped.slot_route[order[route]], static_cast<std::int64_t>(route));
      }
    }
  }
}

TEST(Grouping, DropsIdsThatNameNoLocalExpert) {
  const Grouped grouped =
      group({-1, 4, 8, kLargestId, std::numeric_limits<std::int32_t>::min(), 5}, 2, 4, 4);
  EXPECT_EQ(grouped.num_routes, 2);
  EXPECT_EQ(grouped.slot_route, (std::vector<std::int64_t>{-1, 0, -1, -1, -1, 1}));
}

TEST(Grouping, CountsIdsOutsideTheModel) {
  const std::vector<std::int32_t> ids = {0, 7, 8, -1, kLargestId, 3};
  EXPECT_EQ(count_dropped_routes(ids, 8), 3);
}

TEST(Grouping, IgnoresWhatItsBuffersHeld) {
  const std::vector<std::int32_t> ids = {5, 9, 9, 3, 5, -1, 0, 9};
  const Grouped want = group(ids, 4, 3, 7, 0x00);
  EXPECT_EQ(group(ids, 4, 3, 7, 0x7F), want);
  EXPECT_EQ(group(ids, 4, 3, 7, 0xFF), want);
}

TEST(Grouping, ServesARankWithoutExperts) {
  const Grouped grouped = group({0, 1, 2}, 1, 3, 0);
  EXPECT_EQ(grouped.num_routes, 0);
  EXPECT_EQ(grouped.expert_offset, (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace halfbyte
