// SPDX-License-Identifier: Apache-2.0
//
// Tactics of cuda_sm90: which there are, which are worth measuring, and that each can be forced by
// name. Pure, so tested without a device.
#include "moe/backends/cuda_sm90_tactics.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "moe/backends/cuda_sm90_plan.h"
#include "unit/moe/cuda_plan_cases.h"

namespace halfbyte {
namespace {

using test::deepseek;
using testing::HasSubstr;
using testing::Not;

constexpr DeviceLimits kH200 = {{DeviceKind::kCuda, 0}, 90, 132, 227 * 1024, 0};
constexpr std::array kTokens = {1, 2, 8, 16, 17, 64, 96, 192, 1024, 5120, 6144, 8064};

ExpertPlan plan_of(std::int64_t capacity_tokens, bool autotune = true) {
  MoeOptions options;
  options.autotune = autotune;
  return test::make_plan(deepseek(), capacity_tokens, kH200, options).value().experts;
}

Sm90Tactic tactic_of(const Sm90Step& step) {
  return step.decode ? sm90_decode_tactic(step.decode_config.tile)
                     : sm90_prefill_tactic(step.gate_up_config.tile_tokens);
}

std::vector<Sm90Tactic> tactics_of(const ExpertPlan& plan) {
  return all_sm90_tactics(true, list_sm90_tile_tokens(plan));
}

TEST(Sm90Tactics, AreFoundByTheirNamesAlone) {
  std::set<std::string> names;
  for (const Sm90Tactic& tactic : tactics_of(plan_of(64))) {
    EXPECT_TRUE(names.insert(tactic.to_string()).second) << tactic.to_string();
    EXPECT_EQ(find_sm90_tactic(tactic.to_string()), tactic);
  }
  EXPECT_EQ(names.count("decode 128x8"), 1U);
  EXPECT_EQ(names.count("prefill 256x160"), 1U);
  for (const char* none : {"", "decode", "decode ", "decode 128", "decode 128x", "decode 128x9",
                           "decode 128x8 ", "decode x8", "prefill 128x64", "prefill 256x", "128x8"})
    EXPECT_FALSE(find_sm90_tactic(none).has_value()) << none;
}

// nvfp4-moe 12.8, and every step finds room for what it writes.
TEST(Sm90Tactics, EachCanBeForcedForEveryNumberOfTokens) {
  const ExpertPlan own = plan_of(8064, false);
  for (const Sm90Tactic& tactic : tactics_of(own)) {
    ExpertPlan request = own;
    request.tactics = {{8064, tactic.to_string()}};
    const auto plan = plan_sm90(request);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_GE(plan->workspace.total_bytes(), own.workspace.total_bytes());
    for (const int tokens : kTokens)
      EXPECT_EQ(tactic_of(choose_sm90_step(*plan, tokens)), tactic) << tokens;
    ASSERT_EQ(plan->kernels.size(), 1U);
  }
}

TEST(Sm90Tactics, OneThatThePlanDoesNotHaveIsRefusedWithThoseItHas) {
  ExpertPlan request = plan_of(64);
  request.tactics = {{64, "decode 7x7"}};
  const Status status = plan_sm90(request).status().clone();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("tactic \"decode 7x7\" of up to 64 tokens"));
  EXPECT_THAT(status.to_string(), HasSubstr("decode 128x8, "));
}

TEST(Sm90Tactics, AListStartsWithThePlansOwnChoice) {
  const ExpertPlan plan = plan_of(16384);
  const std::vector<TacticList> lists = list_sm90_tactics(plan);
  const std::vector<std::int64_t> buckets = token_buckets(16384);
  ASSERT_EQ(lists.size(), buckets.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    EXPECT_EQ(lists[i].num_tokens, buckets[i]);
    EXPECT_EQ(lists[i].names.front(), tactic_of(choose_sm90_step(plan, buckets[i])).to_string());
    EXPECT_EQ(std::set<std::string>(lists[i].names.begin(), lists[i].names.end()).size(),
              lists[i].names.size());
  }
}

// DeepSeek-V3's 256 experts have 32 tokens' rows each at 1024 tokens: there both kernels are near.
TEST(Sm90Tactics, BothKernelsAreMeasuredNearTheirCrossover) {
  const auto kinds_of = [](std::int64_t num_tokens) {
    std::set<std::string> kinds;
    const TacticList list = list_sm90_tactics(plan_of(num_tokens)).back();
    for (const std::string& name : list.names)
      kinds.insert(name.substr(0, name.find(' ')));
    return kinds;
  };
  EXPECT_EQ(kinds_of(8), (std::set<std::string>{"decode"}));
  EXPECT_EQ(kinds_of(512), (std::set<std::string>{"decode", "prefill"}));
  EXPECT_EQ(kinds_of(1024), (std::set<std::string>{"decode", "prefill"}));
  EXPECT_EQ(kinds_of(16384), (std::set<std::string>{"prefill"}));
}

// Whatever a measurement picks, the workspace stays as it was planned.
TEST(Sm90Tactics, ThePlanHasRoomForEveryTacticOfItsLists) {
  for (const std::int64_t capacity : {64, 700, 5120}) {
    const ExpertPlan plan = plan_of(capacity);
    for (const TacticList& list : list_sm90_tactics(plan)) {
      for (const std::string& name : list.names) {
        ExpertPlan request = plan;
        request.tactics = {{list.num_tokens, name}};
        EXPECT_EQ(plan_sm90(request).value().workspace.total_bytes(), plan.workspace.total_bytes())
            << capacity << " " << list.num_tokens << " " << name;
      }
    }
  }
}

// warm_up launches what is listed, so a bucket must not fall between its steps.
TEST(Sm90Tactics, TheListOfStepsHoldsEveryMeasuredBucket) {
  ExpertPlan request = plan_of(4100);
  const std::vector<Sm90Tactic> tactics = tactics_of(request);
  std::size_t next = 0;
  for (const std::int64_t bucket : token_buckets(4100))
    request.tactics[bucket] = tactics[next++ % tactics.size()].to_string();
  const ExpertPlan plan = plan_sm90(request).value();
  test::expect_lists_every_step(list_sm90_steps(plan), 4100, 1, [&plan](std::int64_t tokens) {
    return choose_sm90_step(plan, tokens);
  });
}

TEST(Sm90Tactics, ThePlanSaysWhatItsKernelsFollow) {
  MoeOptions options;
  MoePlan plan = test::make_plan(deepseek(), 64, kH200, options).value();
  EXPECT_THAT(describe(plan), HasSubstr("tactics: the backend's own, until"));
  plan.experts.tactics = {{8, "decode 64x8"}};
  EXPECT_THAT(describe(plan), HasSubstr("tactics: up to 8 tokens: decode 64x8"));
  options.autotune = false;
  EXPECT_THAT(describe(test::make_plan(deepseek(), 64, kH200, options).value()),
              Not(HasSubstr("tactics:")));
  options.autotune = true;
  EXPECT_FALSE(test::make_plan(deepseek(), 64, {}, options).value().experts.autotune);
}

}  // namespace
}  // namespace halfbyte
