// SPDX-License-Identifier: Apache-2.0
//
// Plans are pure: every case runs without a transport, for any number of ranks.
#include "moe/plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace halfbyte {
namespace {

using testing::HasSubstr;

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 128;
  spec.num_experts = 30;
  spec.top_k = 2;
  return spec;
}

MoeOptions options_with(std::int64_t capacity, ActivationMode mode = ActivationMode::kW4a16) {
  MoeOptions options;
  options.runner_backend = "reference";
  options.activation_mode = mode;
  options.capacity_tokens = capacity;
  return options;
}

Result<MoePlan> plan_of(const MoeOptions& options, int num_ranks = 1, int rank = 0) {
  NoticeSink notices;
  return make_moe_plan(small_spec(), options, {}, num_ranks, rank, notices);
}

MoeOptions all_to_all(MoeOptions options) {
  options.a2a_backend = "all_to_all";
  return options;
}

TEST(MoePlan, OneRankIsLocal) {
  const auto plan = plan_of(options_with(64));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->transport, "local");
  EXPECT_EQ(plan->dispatch.dispatcher, "local");
  EXPECT_EQ(plan->experts.capacity_tokens, 64);
  EXPECT_EQ(plan->experts.max_routes, 128);
  EXPECT_EQ(plan->dispatch.row_dtype, plan->experts.row_dtype);
}

// 11.1: local means one rank, whose dispatcher is local whatever --moe-a2a-backend says.
TEST(MoePlan, OneRankIsLocalUnderAllToAllToo) {
  EXPECT_EQ(plan_of(all_to_all(options_with(64)))->dispatch.dispatcher, "local");
}

TEST(MoePlan, ThePartsOfTheWorkspaceDoNotOverlap) {
  const auto plan = plan_of(options_with(33));
  ASSERT_TRUE(plan.ok());
  EXPECT_GE(plan->expert_workspace_offset,
            plan->dispatch_workspace_offset + plan->dispatch.workspace.total_bytes());
  EXPECT_GE(plan->output_offset,
            plan->expert_workspace_offset + plan->experts.workspace.total_bytes());
  EXPECT_EQ(plan->workspace.total_bytes(), plan->output_offset + 33 * 2 * 64 * 4);
}

// B46: the reported workspace is monotone in the capacity, and not counted twice.
TEST(MoePlan, TheWorkspaceGrowsWithTheCapacityAndAtMostInProportion) {
  std::size_t before = 0;
  for (const std::int64_t capacity : {1, 2, 63, 64, 65, 128, 1000}) {
    const std::size_t bytes = plan_of(options_with(capacity))->workspace.total_bytes();
    EXPECT_GT(bytes, before) << capacity;
    before = bytes;
  }
  const std::size_t one = plan_of(options_with(1024))->workspace.total_bytes();
  const std::size_t two = plan_of(options_with(2048))->workspace.total_bytes();
  EXPECT_LE(two, 2 * one);
}

TEST(MoePlan, TheSameInputsGiveTheSamePlan) {
  EXPECT_EQ(describe(*plan_of(options_with(64), 4, 2)), describe(*plan_of(options_with(64), 4, 2)));
}

// 10.4: rows entering the experts.
TEST(MoePlan, CapacityFollowsTheScheme) {
  EXPECT_EQ(plan_of(options_with(64), 2)->experts.capacity_tokens, 64);
  MoeOptions data_parallel = options_with(64);
  data_parallel.dp_size = 2;
  EXPECT_EQ(plan_of(data_parallel, 2)->experts.capacity_tokens, 128);
  const auto exchanged = plan_of(all_to_all(options_with(64)), 4);
  ASSERT_TRUE(exchanged.ok()) << exchanged.status().to_string();
  EXPECT_EQ(exchanged->experts.capacity_tokens, 256);
  EXPECT_EQ(exchanged->dispatch.max_tokens_per_rank, 64);
}

// The example of 10.4: 64 tokens, and dp = 2 gathering 2 x 64.
TEST(MoePlan, AForwardFitsByTheListThatEveryRankHas) {
  DispatchPlan plan;
  plan.dispatcher = "local";
  plan.capacity_tokens = plan.max_tokens_per_rank = 64;
  EXPECT_TRUE(check_forward_fits(plan, 64, {}).ok());
  EXPECT_EQ(check_forward_fits(plan, 65, {}).code(), StatusCode::kCapacityExceeded);

  plan.dispatcher = "standard";
  plan.dp_size = 2;
  const std::vector<std::int64_t> both = {64, 64};
  EXPECT_EQ(check_forward_fits(plan, 64, both).code(), StatusCode::kCapacityExceeded);
  plan.capacity_tokens = 128;
  EXPECT_TRUE(check_forward_fits(plan, 64, both).ok());

  plan.dispatcher = "all_to_all";
  const std::vector<std::int64_t> uneven = {3, 65};
  EXPECT_EQ(check_forward_fits(plan, 3, uneven).code(), StatusCode::kCapacityExceeded);
}

// 9.1: 30 experts over 8 ranks.
TEST(MoePlan, EachRankHoldsItsPartOfTheExperts) {
  MoeOptions options = options_with(16);
  options.ep_size = 8;
  std::vector<std::int64_t> first, count;
  for (int rank = 0; rank < 8; ++rank) {
    const auto plan = plan_of(options, 8, rank);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    first.push_back(plan->experts.shard.first_expert);
    count.push_back(plan->experts.shard.num_local_experts);
  }
  EXPECT_EQ(count, (std::vector<std::int64_t>{4, 4, 4, 4, 4, 4, 3, 3}));
  EXPECT_EQ(first, (std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 27}));
}

// 9.4: on by default for both w4a4 modes under all-to-all, off under the standard scheme.
TEST(MoePlan, ThePayloadFollowsSchemeAndMode) {
  const auto payload = [](const MoeOptions& options) {
    const auto plan = plan_of(options, 2);
    EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.status().to_string());
    return plan.ok() ? plan->dispatch.payload : Payload::kAsGiven;
  };
  const MoeOptions w4a4 = options_with(16, ActivationMode::kW4a4);
  EXPECT_EQ(payload(all_to_all(w4a4)), Payload::kNvfp4);
  EXPECT_EQ(payload(all_to_all(options_with(16, ActivationMode::kW4a4Dynamic))),
            Payload::kNvfp4Dynamic);
  EXPECT_EQ(payload(all_to_all(options_with(16))), Payload::kAsGiven);
  EXPECT_EQ(payload(w4a4), Payload::kAsGiven);
  MoeOptions asked = w4a4;
  asked.nvfp4_dispatch = true;
  EXPECT_EQ(payload(asked), Payload::kAsGiven);  // dp = 1: tokens are replicated, none travels
  asked.dp_size = 2;
  EXPECT_EQ(payload(asked), Payload::kNvfp4);
  MoeOptions off = all_to_all(w4a4);
  off.nvfp4_dispatch = false;
  EXPECT_EQ(payload(off), Payload::kAsGiven);
}

TEST(MoePlan, TheWireIsTheOutputsTypeUnlessNamed) {
  EXPECT_EQ(plan_of(options_with(16), 2)->dispatch.combine_dtype, DType::kBf16);
  MoeOptions options = options_with(16);
  options.combine_dtype = DType::kF32;
  EXPECT_EQ(plan_of(options, 2)->dispatch.combine_dtype, DType::kF32);
}

TEST(MoePlan, WrongNumbersAreRefusedWithTheRemedy) {
  EXPECT_THAT(plan_of(options_with(0)).status().to_string(), HasSubstr("capacity_tokens is 0"));
  MoeOptions ranks = options_with(16);
  ranks.tp_size = 4;
  EXPECT_THAT(plan_of(ranks, 2).status().to_string(), HasSubstr("give --tp-size 2"));
  MoeOptions payload = options_with(16);
  payload.nvfp4_dispatch = true;
  EXPECT_EQ(plan_of(payload, 2).status().code(), StatusCode::kUnsupported);
}

// 11.3 rows 1 to 3 come before row 4: the backend that cannot is named, not the sizes.
TEST(MoePlan, TheBackendsReasonComesBeforeTheSizes) {
  MoeOptions options = options_with(16);
  options.runner_backend = "cuda_sm90";
  options.tp_size = 4;
  options.ep_size = 3;
  EXPECT_THAT(plan_of(options, 4).status().to_string(), HasSubstr("cuda_sm90"));
}

TEST(MoePlan, TheTextNamesEveryDecision) {
  const std::string text = describe(*plan_of(options_with(64)));
  for (const char* part : {"transport: local", "backend: reference in w4a16", "dispatcher: local",
                           "capacity: 64 tokens a rank", "expert_output", "dispatch/topk_idx"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace halfbyte
