// SPDX-License-Identifier: Apache-2.0
//
// Expected values: the tables and vectors of nvfp4-moe section 10.
#include "moe/token_budget.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace halfbyte {
namespace {

using testing::HasSubstr;

TokenBudget budget_of(const TokenBudgetOptions& options) {
  auto budget = make_token_budget(options);
  EXPECT_TRUE(budget.ok()) << (budget.ok() ? "" : budget.status().to_string());
  return budget.ok() ? *budget : TokenBudget{};
}

Status refusal_of(const TokenBudgetOptions& options) {
  auto budget = make_token_budget(options);
  EXPECT_FALSE(budget.ok());
  return budget.ok() ? Status() : budget.take_status();
}

// B and Bd as the second table of 10.2 names them, without graphs of prefill.
TokenBudgetOptions options_with(std::int64_t b, std::int64_t bd, int ep) {
  TokenBudgetOptions options;
  options.max_prefill_tokens = b;
  options.decode_graph_max_bs = bd;
  options.ep_size = ep;
  options.a2a_backend = "all_to_all";
  return options;
}

TEST(TokenBudget, BFollowsTheTableOfThePerRankBound) {
  TokenBudgetOptions first;
  first.prefill_graph_max_tokens = 2048;
  first.decode_graph_max_bs = 512;
  EXPECT_EQ(budget_of(first).max_tokens_per_rank, 16384);

  TokenBudgetOptions second;
  second.max_prefill_tokens = 512;
  second.prefill_graph_max_tokens = 512;
  second.decode_graph_max_bs = 512;
  second.speculative_algorithm = "EAGLE";
  second.speculative_num_draft_tokens = 8;
  EXPECT_EQ(budget_of(second).max_tokens_per_rank, 4096);
  EXPECT_EQ(budget_of(second).max_decode_tokens_per_rank, 4096);

  TokenBudgetOptions third;
  third.max_prefill_tokens = 512;
  third.prefill_graph_max_tokens = 2048;
  third.disable_prefill_graphs = true;
  third.decode_graph_max_bs = 64;
  EXPECT_EQ(budget_of(third).max_tokens_per_rank, 512);
}

// 10.1: the number of draft tokens counts only when an algorithm is set, whatever its name.
TEST(TokenBudget, DraftTokensCountOnlyWithAnAlgorithm) {
  TokenBudgetOptions options;
  options.decode_graph_max_bs = 64;
  options.speculative_num_draft_tokens = 4;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 64);
  EXPECT_EQ(budget_of(options).tokens_per_decode_request, 1);
  options.speculative_algorithm = "NAME_OF_NEXT_YEAR";
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 256);
  EXPECT_EQ(budget_of(options).tokens_per_decode_request, 4);
  options.speculative_num_draft_tokens = 0;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 64);
}

// 10.1: without decode graphs Bd is 0, except on a decode-only node.
TEST(TokenBudget, RunningRequestsCountOnADecodeOnlyNodeWithoutGraphs) {
  TokenBudgetOptions options;
  options.max_running_requests = 96;
  options.speculative_algorithm = "EAGLE";
  options.speculative_num_draft_tokens = 2;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 0);
  options.disaggregation = DisaggregationMode::kPrefill;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 0);
  options.disaggregation = DisaggregationMode::kDecode;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 192);
  options.decode_graph_max_bs = 8;
  EXPECT_EQ(budget_of(options).max_decode_tokens_per_rank, 16);
}

TEST(TokenBudget, DefaultOfDFollowsItsTable) {
  struct Row {
    std::int64_t b, bd;
    std::vector<std::int64_t> d;  // ep 1, 2, 4, 8, 16
  };
  const std::vector<Row> rows = {{16384, 512, {16384, 8192, 4096, 4096, 4096}},
                                 {12288, 8192, {12288, 8192, 8192, 8192, 8192}},
                                 {4096, 4096, {4096, 4096, 4096, 4096, 4096}},
                                 {512, 64, {512, 512, 512, 512, 512}}};
  for (const Row& row : rows) {
    int ep = 1;
    for (const std::int64_t want : row.d) {
      EXPECT_EQ(budget_of(options_with(row.b, row.bd, ep)).max_dispatch_tokens_per_rank, want)
          << "B " << row.b << " Bd " << row.bd << " ep " << ep;
      ep *= 2;
    }
  }
}

// 10.2: V1 and V2 hold by construction for every default.
TEST(TokenBudget, EveryDefaultValidates) {
  for (const std::int64_t b : {1, 127, 129, 4097, 16384, 100000}) {
    for (const std::int64_t bd : {0, 1, 511, 9000}) {
      for (const int ep : {1, 2, 3, 7, 8, 72}) {
        const TokenBudget budget = budget_of(options_with(b, bd, ep));
        EXPECT_GE(budget.max_dispatch_tokens_per_rank * ep, budget.max_tokens_per_rank);
        EXPECT_GE(budget.max_dispatch_tokens_per_rank, budget.max_decode_tokens_per_rank);
        EXPECT_EQ(budget.max_dispatch_tokens_per_rank % 128, 0);
      }
    }
  }
}

// The vector of 10.3: D = 1024, B = 16384, Bd = 512.
TEST(TokenBudget, TooSmallADispatchIsRefusedWithTheSmallestThatPasses) {
  int ep = 1;
  for (const char* remedy : {"16384", "8192", "4096", "2048"}) {
    TokenBudgetOptions options = options_with(16384, 512, ep);
    options.max_dispatch_tokens_per_rank = 1024;
    const Status status = refusal_of(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(std::string("set --moe-max-dispatch-tokens-per-rank to ") + remedy + " or more"));
    ep *= 2;
  }
  TokenBudgetOptions options = options_with(16384, 512, 16);
  options.max_dispatch_tokens_per_rank = 1024;
  EXPECT_EQ(budget_of(options).max_dispatch_tokens_per_rank, 1024);  // equality passes
}

TEST(TokenBudget, TheRefusalNamesEveryNumber) {
  TokenBudgetOptions options = options_with(16384, 512, 8);
  options.max_dispatch_tokens_per_rank = 1024;
  EXPECT_EQ(
      refusal_of(options).message(),
      "all-to-all holds 8 x 1024 = 8192 tokens, a forward may need 16384 (a decode step 512): "
      "set --moe-max-dispatch-tokens-per-rank to 2048 or more, or lower --max-prefill-tokens "
      "or --cuda-graph-max-bs");
  options.decode_graph_max_bs = 0;  // nothing bounds a decode step by itself
  EXPECT_EQ(refusal_of(options).message(),
            "all-to-all holds 8 x 1024 = 8192 tokens, a forward may need 16384: set "
            "--moe-max-dispatch-tokens-per-rank to 2048 or more, or lower --max-prefill-tokens");
}

// 10.3: a decode step cannot be split, so V2 holds even where the ranks together are large enough,
// and on a decode-only node, where V1 is skipped.
TEST(TokenBudget, ADecodeStepMustFitOneRank) {
  TokenBudgetOptions options = options_with(16384, 2048, 16);
  options.max_dispatch_tokens_per_rank = 1024;
  EXPECT_THAT(std::string(refusal_of(options).message()), HasSubstr("to 2048 or more"));
  options.disaggregation = DisaggregationMode::kDecode;
  EXPECT_THAT(std::string(refusal_of(options).message()), HasSubstr("to 2048 or more"));
  options.max_dispatch_tokens_per_rank = 2048;
  options.ep_size = 2;  // 4096 < B = 16384: V1 would refuse
  EXPECT_EQ(budget_of(options).max_dispatch_tokens_per_rank, 2048);
}

// 10.2: a decode-only node takes its default from Bd alone.
TEST(TokenBudget, ADecodeOnlyNodeSizesItsDispatchByDecode) {
  TokenBudgetOptions options = options_with(16384, 512, 2);
  options.disaggregation = DisaggregationMode::kDecode;
  EXPECT_EQ(budget_of(options).max_dispatch_tokens_per_rank, 512);
}

TEST(TokenBudget, ADispatchCountOutOfRangeIsRefused) {
  for (const std::int64_t tokens : {std::int64_t{-1}, std::int64_t{1} << 31}) {
    TokenBudgetOptions options = options_with(512, 64, 2);
    options.max_dispatch_tokens_per_rank = tokens;
    EXPECT_THAT(std::string(refusal_of(options).message()),
                HasSubstr("--moe-max-dispatch-tokens-per-rank"))
        << tokens;
  }
}

TEST(TokenBudget, PrefillTokensMustBePositive) {
  for (const std::int64_t tokens : {0, -5}) {
    TokenBudgetOptions options;
    options.max_prefill_tokens = tokens;
    EXPECT_THAT(std::string(refusal_of(options).message()), HasSubstr("--max-prefill-tokens"));
  }
}

// 10.4: tokens entering the experts, and 10.1: what the scheduler may form.
TEST(TokenBudget, CapacityFollowsTheScheme) {
  TokenBudgetOptions options;
  options.max_prefill_tokens = 64;
  EXPECT_EQ(budget_of(options).capacity_tokens, 64);
  options.dp_size = 2;
  EXPECT_EQ(budget_of(options).capacity_tokens, 128);
  EXPECT_EQ(budget_of(options).max_forward_tokens, 64);

  TokenBudgetOptions exchanged = options_with(16384, 512, 8);
  EXPECT_EQ(budget_of(exchanged).capacity_tokens, 8 * 4096);
  EXPECT_EQ(budget_of(exchanged).max_forward_tokens, 4096);
}

// V1 and V2 belong to all-to-all alone.
TEST(TokenBudget, TheStandardSchemeNeedsNoDispatchLimit) {
  TokenBudgetOptions options = options_with(16384, 512, 8);
  options.max_dispatch_tokens_per_rank = 1;
  options.a2a_backend = "none";
  EXPECT_EQ(budget_of(options).max_forward_tokens, 16384);
}

}  // namespace
}  // namespace halfbyte
