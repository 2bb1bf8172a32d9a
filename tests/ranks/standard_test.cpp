// SPDX-License-Identifier: Apache-2.0
//
// The standard scheme (and `local`, its one-rank form) against the sums of nvfp4-moe 9.5 written
// out again in scenario.cpp; equal bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "ranks/scenario.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;

Scenario replicated(int ep, int moe_tp, std::int64_t num_experts) {
  Scenario scenario;
  scenario.ep = ep;
  scenario.tp = ep * moe_tp;
  scenario.num_experts = num_experts;
  scenario.tokens_per_rank = {7};
  return scenario;
}

TEST(Local, EqualsTheWrittenOutSum) {
  for (const std::int64_t experts : {1, 3, 15, 16, 17, 33, 36}) {
    Scenario scenario = replicated(1, 1, experts);
    scenario.dispatcher = "local";
    for (const std::uint8_t poison : kPoisons) {
      scenario.poison = poison;
      EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 11)), "") << experts;
    }
  }
}

TEST(Local, ServesEveryDtypeAndSharedExpert) {
  Scenario scenario = replicated(1, 1, 20);
  scenario.dispatcher = "local";
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const DType row_dtype : {DType::kBf16, DType::kF32}) {
      for (const auto shared : {SharedExpert::Kind::kNone, SharedExpert::Kind::kReplicated}) {
        scenario.x_dtype = scenario.y_dtype = dtype;
        scenario.row_dtype = row_dtype;
        scenario.shared = shared;
        EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 3)), "");
      }
    }
  }
}

TEST(Local, WeighsTheInputWhenTheSpecSaysSo) {
  Scenario scenario = replicated(1, 1, 20);
  scenario.dispatcher = "local";
  scenario.top_k = 1;
  scenario.weight_input = true;
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 4)), "");
}

struct Split {
  int ep, moe_tp;
  std::int64_t num_experts;
};
class Replicated : public ::testing::TestWithParam<Split> {};
// Whole subtrees, uneven splits, more ranks than experts, and splits inside experts.
INSTANTIATE_TEST_SUITE_P(Splits,
                         Replicated,
                         ::testing::Values(Split{1, 1, 32},
                                           Split{2, 1, 32},
                                           Split{4, 1, 32},
                                           Split{8, 1, 32},
                                           Split{16, 1, 32},
                                           Split{8, 1, 30},
                                           Split{4, 1, 10},
                                           Split{8, 1, 3},
                                           Split{6, 1, 128},
                                           Split{16, 1, 30},
                                           Split{1, 4, 32},
                                           Split{2, 2, 32},
                                           Split{3, 2, 30}));

TEST_P(Replicated, EqualsTheWrittenOutSum) {
  Scenario scenario = replicated(GetParam().ep, GetParam().moe_tp, GetParam().num_experts);
  for (const std::uint8_t poison : kPoisons) {
    scenario.poison = poison;
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 5)), "");
  }
}

TEST_P(Replicated, EqualsItWithA16BitWireAndASharedExpert) {
  Scenario scenario = replicated(GetParam().ep, GetParam().moe_tp, GetParam().num_experts);
  scenario.y_dtype = DType::kBf16;
  for (const DType wire : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const auto shared : {SharedExpert::Kind::kReplicated, SharedExpert::Kind::kSharded}) {
      scenario.combine_dtype = wire;
      scenario.shared = shared;
      EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 6)), "");
    }
  }
}

TEST(Standard, GivesEqualBitsForEveryEpThatFollowsTheTree) {
  const Scenario one = replicated(1, 1, 48);
  const std::vector<GroupTokens> tokens = make_tokens(one, 7);
  const ScenarioResult want = run_scenario(one, tokens);
  for (const int ep : {2, 4, 8, 16}) {
    const ScenarioResult got = run_scenario(replicated(ep, 1, 48), tokens);
    for (const std::vector<float>& y : got.y)
      EXPECT_EQ(y, want.y[0]) << "ep " << ep;
  }
}

TEST(Standard, TakesMoreTokensThanOneWindow) {
  Scenario scenario = replicated(2, 1, 16);
  scenario.hidden_size = 16;
  scenario.top_k = 2;
  scenario.max_tokens_per_rank = 2500;
  scenario.tokens_per_rank = {2400};  // windows of 1024, 1024 and 352
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 8)), "");
}

// ------------------------------------------------------------------------------- dp > 1

struct Groups {
  int tp, ep, dp;
  std::int64_t num_experts;
  std::vector<std::int64_t> tokens;
};
class Gathered : public ::testing::TestWithParam<Groups> {};
INSTANTIATE_TEST_SUITE_P(
    Groups,
    Gathered,
    ::testing::Values(Groups{2, 2, 2, 32, {3, 0}},
                      Groups{2, 2, 2, 32, {0, 0}},
                      Groups{2, 2, 2, 32, {0, 1}},
                      Groups{4, 4, 4, 32, {5, 1, 0, 9}},
                      Groups{4, 2, 2, 32, {5, 2}},
                      Groups{4, 4, 2, 30, {6, 3}},
                      Groups{4, 1, 4, 32, {1, 2, 3, 4}},
                      Groups{8, 4, 2, 30, {1, 4}},
                      Groups{8, 8, 8, 30, {1, 0, 2, 0, 3, 0, 4, 0}},
                      Groups{8, 8, 4, 3, {2, 2, 0, 7}},
                      // one group has more than max_tokens_per_rank, all together fit
                      Groups{2, 2, 2, 32, {31, 1}}));

Scenario gathered(const Groups& groups) {
  Scenario scenario;
  scenario.tp = groups.tp;
  scenario.ep = groups.ep;
  scenario.dp = groups.dp;
  scenario.num_experts = groups.num_experts;
  scenario.tokens_per_rank = groups.tokens;
  return scenario;
}

TEST_P(Gathered, EqualsTheWrittenOutSum) {
  Scenario scenario = gathered(GetParam());
  for (const std::uint8_t poison : kPoisons) {
    scenario.poison = poison;
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 9)), "");
  }
}

TEST_P(Gathered, EqualsItWithEveryWireAndASharedExpert) {
  Scenario scenario = gathered(GetParam());
  scenario.shared = SharedExpert::Kind::kReplicated;
  for (const DType wire : {DType::kBf16, DType::kF16, DType::kF32}) {
    scenario.combine_dtype = wire;
    scenario.x_dtype = scenario.y_dtype = wire;
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 10)), "");
  }
}

TEST_P(Gathered, AnNvfp4PayloadChangesNoBit) {
  Scenario scenario = gathered(GetParam());
  const std::vector<GroupTokens> tokens = make_tokens(scenario, 12);
  for (const auto& [mode, payload] :
       {std::pair(ActivationMode::kW4a4, Payload::kNvfp4),
        std::pair(ActivationMode::kW4a4Dynamic, Payload::kNvfp4Dynamic)}) {
    scenario.mode = mode;
    scenario.payload = Payload::kAsGiven;
    EXPECT_EQ(check_scenario(scenario, tokens), "");
    scenario.payload = payload;
    EXPECT_EQ(check_scenario(scenario, tokens), "");
  }
}

TEST(Standard, GathersMoreThanOneWindow) {
  Scenario scenario = gathered({4, 4, 2, 16, {2100, 30}});
  scenario.hidden_size = 16;
  scenario.top_k = 1;
  scenario.max_tokens_per_rank = 2200;
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 13)), "");
}

TEST(Standard, RowsThatEnterTheExpertsAreTokensOnly) {
  const Scenario scenario = gathered({4, 4, 4, 32, {5, 1, 0, 9}});
  const ScenarioResult result = run_scenario(scenario, make_tokens(scenario, 9));
  for (const std::int64_t rows : result.num_rows)
    EXPECT_EQ(rows, 15);  // no padding among them
}

// ------------------------------------------------------------------------------- fast

// The spread of `fast` is bounded by 2^-8 of the row's norm (9.5); with an fp32 wire only the order
// of ranks differs from the ordered sum.
TEST(Standard, FastStaysWithinItsBound) {
  for (Scenario scenario :
       {replicated(4, 1, 32), replicated(2, 2, 32), gathered({4, 4, 4, 32, {5, 1, 0, 9}}),
        gathered({4, 4, 2, 32, {5, 1}})}) {
    for (const DType wire : {DType::kF32, DType::kBf16}) {
      scenario.combine_dtype = wire;
      scenario.shared = SharedExpert::Kind::kReplicated;
      const std::vector<GroupTokens> tokens = make_tokens(scenario, 14);
      const auto want = expected_outputs(scenario, tokens);
      scenario.combine_mode = CombineMode::kFast;
      const ScenarioResult result = run_scenario(scenario, tokens);
      const auto group_size = static_cast<std::size_t>(scenario.tp / scenario.dp);
      const auto cols = static_cast<std::size_t>(scenario.hidden_size);
      for (std::size_t rank = 0; rank < result.y.size(); ++rank) {
        ASSERT_TRUE(result.status[rank].ok()) << result.status[rank].to_string();
        const std::vector<float>& y = result.y[rank];
        const std::vector<float>& ordered = want[rank / group_size];
        ASSERT_EQ(y.size(), ordered.size());
        for (std::size_t row = 0; row < y.size(); row += cols) {
          double norm = 0.0;
          double error = 0.0;
          for (std::size_t i = row; i < row + cols; ++i) {
            norm += double{ordered[i]} * ordered[i];
            error += std::pow(double{y[i]} - ordered[i], 2);
          }
          EXPECT_LE(std::sqrt(error), std::sqrt(norm) / 256);
        }
      }
      EXPECT_TRUE(result.guards_intact);
    }
  }
}

TEST(Standard, FastKeepsTokensWithoutARouteAtZero) {
  Scenario scenario = replicated(2, 1, 32);
  scenario.combine_mode = CombineMode::kFast;
  std::vector<GroupTokens> tokens = make_tokens(scenario, 15);
  std::ranges::fill(tokens[0].topk_idx, -1);
  const ScenarioResult result = run_scenario(scenario, tokens);
  for (const std::vector<float>& y : result.y) {
    EXPECT_EQ(y, std::vector<float>(y.size(), 0.0F));
  }
}

// ------------------------------------------------------------------------------- refusals

TEST(Standard, RefusesAShardedSharedExpertWhenTokensDifferByRank) {
  Scenario scenario = gathered({2, 2, 2, 32, {1, 1}});
  scenario.shared = SharedExpert::Kind::kSharded;
  const ScenarioResult result = run_scenario(scenario, make_tokens(scenario, 16));
  for (const Status& status : result.status) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(status.message()), HasSubstr("replicate it"));
  }
  EXPECT_TRUE(result.outputs_untouched);
}

TEST(Standard, RefusesTokenCountsThatDoNotMatch) {
  Scenario scenario = gathered({2, 2, 2, 32, {2, 1}});
  const std::vector<GroupTokens> tokens = make_tokens(scenario, 17);
  scenario.tokens_per_rank = {};
  EXPECT_THAT(run_scenario(scenario, tokens).status[0].to_string(),
              HasSubstr("must list the tokens of all 2 data-parallel ranks, got 0"));
  scenario.tokens_per_rank = {1, 2};
  EXPECT_THAT(run_scenario(scenario, tokens).status[0].to_string(),
              HasSubstr("tokens_per_rank is [1, 2], x of data-parallel rank 0 has 2 rows"));
}

}  // namespace
}  // namespace halfbyte::test
