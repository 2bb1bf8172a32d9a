// SPDX-License-Identifier: Apache-2.0
//
// Faults of other engines with experts spread over ranks, each as a case here. Expected values come
// from ranks/scenario.cpp or stand beside the case.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "ranks/scenario.h"

namespace halfbyte::test {
namespace {

Scenario spread(std::int64_t num_experts, std::vector<std::int64_t> tokens) {
  Scenario scenario;
  scenario.dispatcher = "all_to_all";
  scenario.tp = scenario.ep = scenario.dp = static_cast<int>(tokens.size());
  scenario.num_experts = num_experts;
  scenario.tokens_per_rank = std::move(tokens);
  return scenario;
}

// TensorRT-LLM #16286: the full output of the shared expert, added on every rank before the sum.
TEST(SharedExpertBug, FourRanksGiveOneAndNotFour) {
  Scenario scenario;
  scenario.tp = 4;
  for (const int ep : {1, 2, 4}) {
    for (const auto kind : {SharedExpert::Kind::kReplicated, SharedExpert::Kind::kSharded}) {
      scenario.ep = ep;
      scenario.shared = kind;
      std::vector<GroupTokens> tokens = make_tokens(scenario, 1);
      tokens[0].topk_weights.assign(tokens[0].topk_weights.size(), 0.0F);
      tokens[0].shared.assign(tokens[0].shared.size(), 1.0F);
      for (const std::vector<float>& y : run_scenario(scenario, tokens).y) {
        EXPECT_EQ(y, std::vector<float>(y.size(), 1.0F));
      }
    }
  }
}

// SGLang #38773, #25397, TensorRT-LLM #7965: ranks without tokens, chunks with empty tails.
TEST(ZeroTokensBug, NoRankWaitsAndAllMakeEqualCalls) {
  for (const std::string dispatcher : {"standard", "all_to_all"}) {
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{3, 0}, {0, 0}, {0, 1}, {16, 1}, {0, 13}}) {
      Scenario scenario = spread(32, counts);
      scenario.dispatcher = dispatcher;
      EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 2)), "");
    }
  }
}

// vLLM #21497, TensorRT-LLM #13888: experts that ranks do not divide. One token to each expert.
TEST(UnevenExpertsBug, EveryExpertIsReachedOnce) {
  struct Split {
    std::int64_t num_experts;
    int ep;
  };
  for (const Split split : {Split{30, 8}, Split{128, 6}, Split{10, 4}, Split{3, 8}}) {
    Scenario scenario;
    scenario.tp = scenario.ep = split.ep;
    scenario.num_experts = split.num_experts;
    scenario.top_k = 1;
    scenario.tokens_per_rank = {split.num_experts};
    scenario.max_tokens_per_rank = split.num_experts;
    std::vector<GroupTokens> tokens = make_tokens(scenario, 3);
    for (std::size_t i = 0; i < tokens[0].topk_idx.size(); ++i) {
      tokens[0].topk_idx[i] = static_cast<std::int32_t>(i);
      tokens[0].topk_weights[i] = 0.5F;
    }
    EXPECT_EQ(check_scenario(scenario, tokens), "") << split.num_experts << " over " << split.ep;
    const ScenarioResult result = run_scenario(scenario, tokens);
    if (split.num_experts == 30) {
      EXPECT_EQ(result.num_routes, (std::vector<std::int64_t>{4, 4, 4, 4, 4, 4, 3, 3}));
    }
  }
}

// FlashInfer #3547: zeros from a rank whose first expert is not 0; SGLang #29055: 36 local experts.
// Tokens on the first and the last expert of each rank.
TEST(ExpertOffsetBug, RanksWithAnOffsetComputeTheirExperts) {
  for (const std::int64_t local : {1, 3, 15, 17, 32, 33, 36, 64}) {
    Scenario scenario;
    scenario.tp = scenario.ep = 2;
    scenario.num_experts = 2 * local;
    scenario.top_k = 1;
    scenario.tokens_per_rank = {4};
    std::vector<GroupTokens> tokens = make_tokens(scenario, 4);
    const auto last = static_cast<std::int32_t>(local - 1);
    tokens[0].topk_idx = {0, last, last + 1, 2 * last + 1};
    tokens[0].topk_weights = {0.5F, 0.25F, 1.0F, 0.75F};
    EXPECT_EQ(check_scenario(scenario, tokens), "") << local;
    EXPECT_EQ(run_scenario(scenario, tokens).num_routes, (std::vector<std::int64_t>{2, 2}));
  }
}

// FlashInfer #4637, DeepEP #427: all traffic to one rank, to one expert, and one token an expert.
TEST(HotRankBug, AllTrafficToOneRankFinishesInsideItsBuffers) {
  constexpr std::int64_t kTokens = 256;
  Scenario scenario = spread(32, {kTokens, kTokens, kTokens, kTokens});
  scenario.hidden_size = 16;
  scenario.top_k = 2;
  scenario.max_tokens_per_rank = kTokens;
  std::vector<GroupTokens> tokens = make_tokens(scenario, 5);
  const auto check = [&](auto id_of) {
    for (GroupTokens& group : tokens) {
      for (std::size_t i = 0; i < group.topk_idx.size(); ++i) {
        group.topk_idx[i] = static_cast<std::int32_t>(id_of(i));
        group.topk_weights[i] = 0.5F;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(check_scenario(scenario, tokens), "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  };
  check([](std::size_t i) { return 24 + i % 8; });  // all on rank 3
  check([](std::size_t) { return 31; });            // all on one expert, twice a row
  check([](std::size_t i) { return i % 32; });      // spread evenly
}

// vLLM #47982, SGLang #26696: capacity without the data-parallel factor. Too many tokens: an error
// on every rank before any collective, no byte of output written.
TEST(CapacityBug, TooManyTokensFailAlikeBeforeAnythingIsSent) {
  struct Case {
    std::string dispatcher;
    std::vector<std::int64_t> tokens;
    std::int64_t max_tokens_per_rank;
    bool fits;
  };
  for (const Case& each :
       {Case{"local", {64}, 64, true}, Case{"local", {65}, 64, false},
        Case{"standard", {64, 64}, 32, false}, Case{"standard", {64, 64}, 64, true},
        Case{"all_to_all", {64, 3}, 64, true}, Case{"all_to_all", {3, 65}, 64, false}}) {
    Scenario scenario = spread(8, each.tokens);
    scenario.dispatcher = each.dispatcher;
    scenario.top_k = 2;
    scenario.hidden_size = 16;
    scenario.max_tokens_per_rank = each.max_tokens_per_rank;
    const ScenarioResult result = run_scenario(scenario, make_tokens(scenario, 6));
    for (std::size_t rank = 0; rank < result.status.size(); ++rank) {
      EXPECT_EQ(result.status[rank].ok(), each.fits) << result.status[rank].to_string();
      if (each.fits) continue;
      EXPECT_EQ(result.status[rank].code(), StatusCode::kCapacityExceeded);
      EXPECT_EQ(result.num_collectives[rank], 0);
    }
    EXPECT_EQ(result.outputs_untouched, !each.fits);
  }
}

// vLLM #45683, #53257: results that change from run to run.
TEST(RepeatBug, FiftyRunsGiveTheSameBits) {
  for (const std::string dispatcher : {"standard", "all_to_all"}) {
    Scenario scenario = spread(30, {5, 0, 7, 2});
    scenario.dispatcher = dispatcher;
    const std::vector<GroupTokens> tokens = make_tokens(scenario, 7);
    const auto want = run_scenario(scenario, tokens).y;
    for (int run = 0; run < 50; ++run)
      ASSERT_EQ(run_scenario(scenario, tokens).y, want);
  }
}

}  // namespace
}  // namespace halfbyte::test
