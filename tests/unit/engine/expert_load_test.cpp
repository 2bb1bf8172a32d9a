// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_load.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

// A layer of two experts of which this rank holds one, or a part of one.
std::vector<ExpertLoad> rank_load(std::vector<std::int64_t> tokens) {
  ExpertLoad layer;
  layer.layer_idx = 3;
  layer.counters.tokens_per_expert = std::move(tokens);
  layer.counters.num_steps = 5;
  layer.counters.experts_touched = 4;
  layer.counters.expert_bytes_read = 100;
  layer.counters.dispatch_bytes = 7;
  layer.counters.dropped_routes = 2;
  layer.counters.unroutable_rows = 1;
  return {layer};
}

TEST(ExpertLoad, OfOneRankIsThatRanks) {
  const std::vector<std::vector<ExpertLoad>> ranks = {rank_load({6, 2})};
  const auto total = sum_expert_load(ranks, 1, 1);
  ASSERT_EQ(total.size(), 1U);
  EXPECT_EQ(total[0].layer_idx, 3);
  EXPECT_EQ(total[0].counters.tokens_per_expert, (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(total[0].counters.experts_touched, 4);
}

// ep 2, dp 2: every rank has experts and tokens of its own.
TEST(ExpertLoad, AddsWhatRanksHaveOfTheirOwn) {
  const std::vector<std::vector<ExpertLoad>> ranks = {rank_load({6, 0}), rank_load({0, 2})};
  const ExpertLoad layer = sum_expert_load(ranks, 2, 2)[0];
  const MoeCounters& total = layer.counters;
  EXPECT_EQ(layer.rank_dispatch_bytes, (std::vector<std::int64_t>{7, 7}));
  EXPECT_EQ(total.tokens_per_expert, (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(total.num_steps, 5);
  EXPECT_EQ(total.experts_touched, 8);
  EXPECT_EQ(total.expert_bytes_read, 200);
  EXPECT_EQ(total.dispatch_bytes, 14);
  EXPECT_EQ(total.dropped_routes, 4);
  EXPECT_EQ(total.unroutable_rows, 2);
}

// ep 1, dp 1 over two ranks: each holds half of every expert and sees every token.
TEST(ExpertLoad, CountsOnceWhatRanksShare) {
  const std::vector<std::vector<ExpertLoad>> ranks = {rank_load({6, 2}), rank_load({6, 2})};
  const MoeCounters total = sum_expert_load(ranks, 1, 1)[0].counters;
  EXPECT_EQ(total.tokens_per_expert, (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(total.experts_touched, 4);
  EXPECT_EQ(total.expert_bytes_read, 200);
  EXPECT_EQ(total.dropped_routes, 2);
  EXPECT_EQ(total.unroutable_rows, 1);
}

TEST(ExpertLoad, OfAModelWithoutExpertsIsEmpty) {
  const std::vector<std::vector<ExpertLoad>> ranks(2);
  EXPECT_TRUE(sum_expert_load(ranks, 1, 1).empty());
}

}  // namespace
}  // namespace halfbyte
