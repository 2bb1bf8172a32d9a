// SPDX-License-Identifier: Apache-2.0
//
// B42: experts that do not divide by the ranks were given to the wrong one. nvfp4-moe 9.1.
#include <gtest/gtest.h>

#include <numeric>

#include "bugs/moe_ranks.h"
#include "weights/sharding.h"

namespace halfbyte {
namespace {

using namespace test;

std::vector<std::int64_t> counts_of(std::int64_t num_experts, int ep) {
  MoeSpec spec = small_moe_spec();
  spec.num_experts = num_experts;
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (int rank = 0; rank < ep; ++rank) {
    const auto shard = shard_experts(spec, ep, ep, rank);
    EXPECT_TRUE(shard.ok());
    EXPECT_EQ(shard->first_expert, next);
    counts.push_back(shard->num_local_experts);
    next += shard->num_local_experts;
  }
  EXPECT_EQ(next, num_experts);
  return counts;
}

TEST(B42, TheFirstRanksHoldOneMore) {
  EXPECT_EQ(counts_of(30, 8), (std::vector<std::int64_t>{4, 4, 4, 4, 4, 4, 3, 3}));
  EXPECT_EQ(counts_of(128, 6), (std::vector<std::int64_t>{22, 22, 21, 21, 21, 21}));
  EXPECT_EQ(counts_of(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(counts_of(3, 8), (std::vector<std::int64_t>{1, 1, 1, 0, 0, 0, 0, 0}));
}

// One token to each of the 30 experts; top_k = 1, so that each output is one product and equal bits
// are due whatever the partition.
TEST(B42, EveryExpertIsReachedOnItsRank) {
  MoeSpec spec = small_moe_spec();
  spec.num_experts = 30;
  spec.top_k = 1;
  const auto experts = random_experts(spec, 9);
  std::vector<RankStep> one = {walking_step(spec, 30, 10)};
  run_ranks(spec, reference_moe_options(30), {}, experts, {}, one);
  ASSERT_EQ(one[0].status, "ok");
  MoeOptions options = reference_moe_options(30);
  options.tp_size = options.ep_size = 8;
  std::vector<RankStep> eight(8, walking_step(spec, 30, 10));
  run_ranks(spec, options, {}, experts, {}, eight);
  for (const RankStep& rank : eight) {
    ASSERT_EQ(rank.status, "ok");
    EXPECT_EQ(rank.y, one[0].y);
  }
}

}  // namespace
}  // namespace halfbyte
