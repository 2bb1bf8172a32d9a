// SPDX-License-Identifier: Apache-2.0
#include "moe/rotating_routing.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace halfbyte {
namespace {

constexpr RoutingShape kWhole = {32, 32, 4};
constexpr RoutingShape kEighth = {64, 8, 8};

// Rows of each expert, sorted.
std::multiset<int> rows_of_experts(const Routing& routing) {
  std::map<std::int32_t, int> rows;
  for (const std::int32_t id : routing.topk_idx)
    if (id >= 0) ++rows[id];
  std::multiset<int> sorted;
  for (const auto& [id, count] : rows)
    sorted.insert(count);
  return sorted;
}

TEST(RotatingRouting, GivesEachTokenDifferentExpertsOfTheLayer) {
  RotatingRouting routing(kWhole, 5);
  for (int round = 0; round < 4; ++round) {
    const auto ids = routing.round(round).topk_idx;
    ASSERT_EQ(ids.size(), 20U);
    for (std::size_t token = 0; token < 5; ++token) {
      const std::set<std::int32_t> chosen(ids.begin() + static_cast<std::ptrdiff_t>(4 * token),
                                          ids.begin() + static_cast<std::ptrdiff_t>(4 * token + 4));
      EXPECT_EQ(chosen.size(), 4U);
      EXPECT_GE(*chosen.begin(), 0);
      EXPECT_LT(*chosen.rbegin(), 32);
    }
  }
}

TEST(RotatingRouting, ReadsAnExpertAgainOnlyAfterAllOthers) {
  RotatingRouting routing(kWhole, 1);
  EXPECT_EQ(routing.num_touched(), 4);
  std::set<std::int32_t> seen;
  for (int round = 0; round < 8; ++round) {
    for (const std::int32_t id : routing.round(round).topk_idx)
      EXPECT_TRUE(seen.insert(id).second) << "expert " << id << " in round " << round;
  }
  EXPECT_EQ(seen.size(), 32U);
}

TEST(RotatingRouting, KeepsTheWorkOfEveryRound) {
  RotatingRouting routing(kWhole, 7);
  const auto first = rows_of_experts(routing.round(0));
  EXPECT_EQ(std::ssize(first), routing.num_touched());
  for (int round = 1; round < 9; ++round)
    EXPECT_EQ(rows_of_experts(routing.round(round)), first);
}

// 16 tokens choose 8 of 64 experts: 128 routes, of which an eighth meets these 8 experts.
TEST(RotatingRouting, GivesARankItsShareOfTheRoutes) {
  RotatingRouting routing(kEighth, 16);
  EXPECT_EQ(routing.num_routes(), 16);
  int routes = 0;
  for (const std::int32_t id : routing.round(3).topk_idx) {
    EXPECT_LT(id, 8);
    routes += id >= 0 ? 1 : 0;
  }
  EXPECT_EQ(routes, 16);
}

// With so many routes an exact draw is rare, and no timing needs one.
TEST(RotatingRouting, OfManyTokensIsWithinAHundredth) {
  const std::int64_t routes = RotatingRouting(kEighth, 4000).num_routes();
  EXPECT_NEAR(static_cast<double>(routes), 4000, 40);
}

TEST(RotatingRouting, OfOneTokenHasARouteHere) {
  EXPECT_EQ(RotatingRouting(kEighth, 1).num_routes(), 1);
}

}  // namespace
}  // namespace halfbyte
