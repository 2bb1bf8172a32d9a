// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all scheme against the sums of nvfp4-moe 9.5 written out again in scenario.cpp; equal
// bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

#include "ranks/scenario.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;

Scenario spread(std::int64_t num_experts, std::vector<std::int64_t> tokens) {
  Scenario scenario;
  scenario.dispatcher = "all_to_all";
  scenario.tp = scenario.ep = scenario.dp = static_cast<int>(tokens.size());
  scenario.num_experts = num_experts;
  scenario.tokens_per_rank = std::move(tokens);
  return scenario;
}

struct Case {
  std::int64_t num_experts;
  std::vector<std::int64_t> tokens;
};
class AllToAll : public ::testing::TestWithParam<Case> {};
// Whole subtrees; uneven experts; ranks without tokens; more ranks than experts.
INSTANTIATE_TEST_SUITE_P(
    Cases,
    AllToAll,
    ::testing::Values(Case{32, {5}},
                      Case{32, {3, 0}},
                      Case{32, {0, 0}},
                      Case{32, {0, 1}},
                      Case{32, {5, 1, 0, 9}},
                      Case{10, {2, 2, 16, 1}},
                      Case{3, {1, 2, 3, 4, 0, 0, 7, 1}},
                      Case{30, {1, 2, 3, 4, 0, 0, 7, 1}},
                      Case{128, {4, 4, 4, 0, 4, 1}},
                      Case{32, {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 16}}));

TEST_P(AllToAll, EqualsTheWrittenOutSum) {
  Scenario scenario = spread(GetParam().num_experts, GetParam().tokens);
  for (const std::uint8_t poison : kPoisons) {
    scenario.poison = poison;
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 21)), "");
  }
}

TEST_P(AllToAll, EqualsItWithEveryWireAndASharedExpert) {
  Scenario scenario = spread(GetParam().num_experts, GetParam().tokens);
  scenario.shared = SharedExpert::Kind::kReplicated;
  for (const DType wire : {DType::kBf16, DType::kF16, DType::kF32}) {
    scenario.combine_dtype = wire;
    scenario.x_dtype = scenario.y_dtype = scenario.row_dtype = wire;
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 22)), "");
  }
}

TEST_P(AllToAll, AnNvfp4PayloadChangesNoBit) {
  Scenario scenario = spread(GetParam().num_experts, GetParam().tokens);
  const std::vector<GroupTokens> tokens = make_tokens(scenario, 23);
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

// An odd number of block scales makes every field behind them unaligned.
TEST(AllToAllRows, FieldsNeedNoAlignment) {
  Scenario scenario = spread(32, {4, 2});
  scenario.hidden_size = 16;
  scenario.top_k = 3;
  scenario.mode = ActivationMode::kW4a4Dynamic;
  scenario.payload = Payload::kNvfp4Dynamic;
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 24)), "");
}

TEST(AllToAllRows, WeighTheInputOnTheSender) {
  Scenario scenario = spread(32, {4, 2});
  scenario.top_k = 1;
  scenario.weight_input = true;
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 25)), "");
  scenario.mode = ActivationMode::kW4a4;
  scenario.payload = Payload::kNvfp4;
  EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 25)), "");
}

// Ids in one row: two of rank 0, one of rank 1, none of ranks 2 and 3; the second token has none.
TEST(AllToAllRows, GoOncePerDistinctRankAndNotAtAllWithoutARoute) {
  Scenario scenario = spread(32, {2, 0, 0, 0});
  std::vector<GroupTokens> tokens = make_tokens(scenario, 26);
  tokens[0].topk_idx = {0, 7, 9, 0, -1, 32, 2147483647, -5};
  const ScenarioResult result = run_scenario(scenario, tokens);
  EXPECT_EQ(result.num_rows, (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(result.num_routes, (std::vector<std::int64_t>{3, 1, 0, 0}));
  EXPECT_EQ(result.dropped_routes, (std::vector<std::int64_t>{4, 0, 0, 0}));
  EXPECT_EQ(check_scenario(scenario, tokens), "");
}

TEST(AllToAllRows, DuplicateIdsAllCount) {
  Scenario scenario = spread(32, {1, 0});
  std::vector<GroupTokens> tokens = make_tokens(scenario, 27);
  tokens[0].topk_idx = {5, 9, 9, 3};
  tokens[0].topk_weights = {0.1F, 0.2F, 0.3F, 0.4F};
  EXPECT_EQ(check_scenario(scenario, tokens), "");
}

TEST(AllToAllSteps, AHundredGiveTheSameBitsAndEqualNumbersOfCollectives) {
  for (const std::vector<std::int64_t>& counts :
       {std::vector<std::int64_t>{3, 0}, {0, 0}, {0, 1}, {3, 0, 0, 0}, {0, 0, 5, 1}}) {
    Scenario scenario = spread(32, counts);
    scenario.steps = 100;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(check_scenario(scenario, make_tokens(scenario, 28)), "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(AllToAll, GivesEqualBitsForEveryEpThatFollowsTheTree) {
  // Six tokens, cut into as many groups as there are ranks.
  const std::vector<GroupTokens> whole = make_tokens(spread(48, {16}), 29);
  Scenario one = spread(48, {16});
  const std::vector<float> want = run_scenario(one, whole).y[0];
  for (const int ep : {2, 4, 8, 16}) {
    const auto each = static_cast<std::size_t>(16 / ep);
    Scenario scenario =
        spread(48, std::vector<std::int64_t>(static_cast<std::size_t>(ep), 16 / ep));
    std::vector<GroupTokens> tokens(static_cast<std::size_t>(ep));
    const auto cut = [&](const auto& values, std::size_t group) {
      const auto size = static_cast<std::ptrdiff_t>(values.size() / 16 * each);
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(group) * size;
      return std::remove_cvref_t<decltype(values)>(begin, begin + size);
    };
    for (std::size_t group = 0; group < tokens.size(); ++group) {
      tokens[group].x = cut(whole[0].x, group);
      tokens[group].topk_idx = cut(whole[0].topk_idx, group);
      tokens[group].topk_weights = cut(whole[0].topk_weights, group);
    }
    std::vector<float> got;
    for (const std::vector<float>& y : run_scenario(scenario, tokens).y) {
      got.insert(got.end(), y.begin(), y.end());
    }
    EXPECT_EQ(got, want) << "ep " << ep;
  }
}

TEST(AllToAll, RefusesAShardedSharedExpert) {
  Scenario scenario = spread(32, {1, 1});
  scenario.shared = SharedExpert::Kind::kSharded;
  const ScenarioResult result = run_scenario(scenario, make_tokens(scenario, 30));
  for (const Status& status : result.status) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(std::string(status.message()), HasSubstr("replicate it"));
  }
  EXPECT_TRUE(result.outputs_untouched);
}

TEST(AllToAll, RefusesAMissingListOfTokenCounts) {
  Scenario scenario = spread(32, {1, 1});
  const std::vector<GroupTokens> tokens = make_tokens(scenario, 31);
  scenario.tokens_per_rank = {};
  EXPECT_THAT(run_scenario(scenario, tokens).status[1].to_string(),
              HasSubstr("must list the tokens of all 2 data-parallel ranks, got 0"));
}

// One rank alone knows all counts.
TEST(AllToAll, NeedsNoListWithOneRank) {
  Scenario scenario = spread(32, {5});
  const std::vector<GroupTokens> tokens = make_tokens(scenario, 32);
  const auto want = expected_outputs(scenario, tokens);
  scenario.tokens_per_rank = {};
  EXPECT_EQ(run_scenario(scenario, tokens).y, want);
}

}  // namespace
}  // namespace halfbyte::test
