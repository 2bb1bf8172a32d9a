// SPDX-License-Identifier: Apache-2.0
//
// Sizes and refusals of the dispatchers; numbers come from nvfp4-moe 9.4 and 10.4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/host_buffer.h"
#include "ranks/scenario.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;

std::size_t bytes_of(const DispatchPlan& plan, const std::string& name) {
  for (const auto& entry : plan.workspace.entries()) {
    if (entry.name == name) return entry.bytes;
  }
  return 0;
}

DispatchPlan plan_of(const Scenario& scenario, int rank = 0) {
  auto dispatcher = make_dispatcher(scenario.dispatcher, nullptr);
  auto plan = plan_scenario(scenario, **dispatcher, rank);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.status().to_string());
  return std::move(plan).value();
}

std::string refusal_of(const Scenario& scenario, int rank = 0) {
  auto dispatcher = make_dispatcher(scenario.dispatcher, nullptr);
  const auto plan = plan_scenario(scenario, **dispatcher, rank);
  return plan.ok() ? "" : plan.status().to_string();
}

// ep 8, D 4096, H 7168, k 8: the table and the example of 9.4.
Scenario large(ActivationMode mode, Payload payload) {
  Scenario scenario;
  scenario.dispatcher = "all_to_all";
  scenario.tp = scenario.ep = scenario.dp = 8;
  scenario.num_experts = 256;
  scenario.top_k = 8;
  scenario.hidden_size = 7168;
  scenario.max_tokens_per_rank = 4096;
  scenario.combine_dtype = DType::kBf16;
  scenario.mode = mode;
  scenario.payload = payload;
  return scenario;
}

TEST(DispatchBytes, AreThoseOfTheTable) {
  const DispatchPlan as_given = plan_of(large(ActivationMode::kW4a16, Payload::kAsGiven));
  EXPECT_EQ(as_given.dispatch_bytes_per_token, 14400);
  EXPECT_EQ(as_given.combine_bytes_per_token, 14336);
  EXPECT_EQ(plan_of(large(ActivationMode::kW4a4, Payload::kNvfp4)).dispatch_bytes_per_token, 4096);
  EXPECT_EQ(
      plan_of(large(ActivationMode::kW4a4Dynamic, Payload::kNvfp4Dynamic)).dispatch_bytes_per_token,
      4100);
  Scenario fp32 = large(ActivationMode::kW4a16, Payload::kAsGiven);
  fp32.combine_dtype = DType::kF32;
  EXPECT_EQ(plan_of(fp32).combine_bytes_per_token, 28672);
}

TEST(DispatchBytes, TheWorkspaceIsTheFormula) {
  const DispatchPlan plan = plan_of(large(ActivationMode::kW4a4, Payload::kNvfp4));
  EXPECT_EQ(bytes_of(plan, "dispatch_receive"), 134'217'728U);
  EXPECT_EQ(bytes_of(plan, "combine_receive"), 469'762'048U);
  std::size_t aux = 0;
  for (const auto& entry : plan.workspace.entries()) {
    if (entry.name == "dispatch_receive") aux = entry.offset;
  }
  EXPECT_EQ(aux % 128, 0U);
  EXPECT_EQ(plan.workspace.total_bytes(), aux + 134'217'728U + 469'762'048U);
}

TEST(DispatchCapacity, IsThatOfEachScheme) {
  Scenario scenario;
  scenario.max_tokens_per_rank = 64;
  scenario.dispatcher = "local";
  EXPECT_EQ(plan_of(scenario).capacity_tokens, 64);
  EXPECT_EQ(plan_of(scenario).max_routes, 64 * 4);
  scenario.dispatcher = "standard";
  scenario.tp = scenario.ep = 4;
  EXPECT_EQ(plan_of(scenario).capacity_tokens, 64);
  scenario.dp = 2;
  EXPECT_EQ(plan_of(scenario).capacity_tokens, 128);
  scenario.dispatcher = "all_to_all";
  scenario.dp = 4;
  EXPECT_EQ(plan_of(scenario).capacity_tokens, 256);
}

TEST(DispatchCapacity, WorkspaceIsMonotoneInIt) {
  for (const std::string& dispatcher : list_dispatchers()) {
    Scenario scenario;
    scenario.dispatcher = dispatcher;
    if (dispatcher != "local") scenario.tp = scenario.ep = scenario.dp = 2;
    std::size_t before = 0;
    for (const std::int64_t capacity : {1, 2, 63, 64, 65, 2000, 5000}) {
      scenario.max_tokens_per_rank = capacity;
      const std::size_t bytes = plan_of(scenario).workspace.total_bytes();
      EXPECT_GE(bytes, before) << dispatcher << " " << capacity;
      before = bytes;
    }
  }
}

TEST(DispatchPlan, BuffersDoNotOverlap) {
  for (const std::string& dispatcher : list_dispatchers()) {
    Scenario scenario;
    scenario.dispatcher = dispatcher;
    if (dispatcher != "local") scenario.tp = scenario.ep = scenario.dp = 2;
    std::size_t end = 0;
    const DispatchPlan plan = plan_of(scenario);
    for (const auto& entry : plan.workspace.entries()) {
      EXPECT_GE(entry.offset, end) << entry.name;
      end = entry.offset + entry.bytes;
    }
  }
}

TEST(DispatchPlan, RefusesWhatASchemeCannotDo) {
  Scenario scenario;
  scenario.dispatcher = "local";
  scenario.tp = 2;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("serves one rank"));
  scenario.dispatcher = "standard";
  scenario.ep = 3;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("must divide tp, got tp 2 ep 3"));
  scenario.ep = 2;
  EXPECT_THAT(refusal_of(scenario, 5), HasSubstr("rank 5 of 2 does not exist"));
  scenario.mode = ActivationMode::kW4a4;
  scenario.payload = Payload::kNvfp4;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("leave nvfp4 dispatch off"));
  scenario.dp = 2;
  EXPECT_EQ(refusal_of(scenario), "");
  scenario.payload = Payload::kNvfp4Dynamic;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("unsupported: an NVFP4 payload needs"));
  scenario.mode = ActivationMode::kW4a16;
  scenario.payload = Payload::kNvfp4;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("the mode is w4a16"));
  scenario.payload = Payload::kAsGiven;
  scenario.dispatcher = "all_to_all";
  scenario.dp = 1;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("ep and dp equal to tp, got tp 2 ep 2 dp 1"));
  scenario.dp = 2;
  scenario.max_tokens_per_rank = 0;
  EXPECT_THAT(refusal_of(scenario), HasSubstr("max_tokens_per_rank 0"));
}

TEST(DispatchPlan, NamesTheDispatchersThereAre) {
  EXPECT_EQ(list_dispatchers(), (std::vector<std::string>{"local", "standard", "all_to_all"}));
  for (const std::string& name : list_dispatchers()) {
    EXPECT_EQ((*make_dispatcher(name, nullptr))->name(), name);
  }
  EXPECT_THAT(make_dispatcher("deepep", nullptr).status().to_string(),
              HasSubstr("no dispatcher is named 'deepep': there are local, standard, all_to_all"));
}

// One rank's dispatcher with its memory, for the order of calls.
class OneRank {
 public:
  OneRank() {
    scenario_.dispatcher = "local";
    dispatcher_ = std::move(make_dispatcher("local", nullptr)).value();
    plan_ = std::move(plan_scenario(scenario_, *dispatcher_, 0)).value();
    workspace_ = std::move(HostBuffer::allocate(plan_.workspace.total_bytes())).value();
    tokens_ = make_tokens(scenario_, 1);
    x_.assign(static_cast<std::size_t>(5 * plan_.spec.hidden_size), 0x3F80);  // bf16 1.0
    rows_.assign(static_cast<std::size_t>(plan_.max_routes * plan_.spec.hidden_size), 1.0F);
    y_.assign(static_cast<std::size_t>(5 * plan_.spec.hidden_size), 0.0F);
  }
  DispatchInput input() {
    DispatchInput input;
    input.x = ConstMatrixView(x_.data(), DType::kBf16, 5, plan_.spec.hidden_size);
    input.routing = {tokens_[0].topk_idx, tokens_[0].topk_weights};
    return input;
  }
  std::string dispatch(const DispatchInput& input) {
    const auto tokens = dispatcher_->dispatch(plan_, input, workspace(), nullptr);
    return tokens.ok() ? "" : tokens.status().to_string();
  }
  std::string combine(MatrixView y) {
    const ExpertOutput output = {
        MatrixView(rows_.data(), DType::kF32, plan_.max_routes, plan_.spec.hidden_size)};
    const Status status = dispatcher_->combine(plan_, {}, output, {}, y, workspace(), nullptr);
    return status.ok() ? "" : status.to_string();
  }
  MatrixView y() { return {y_.data(), DType::kF32, 5, plan_.spec.hidden_size}; }
  Workspace workspace() { return {workspace_.data(), workspace_.size() - missing_bytes}; }
  std::size_t missing_bytes = 0;

 private:
  Scenario scenario_;
  std::unique_ptr<Dispatcher> dispatcher_;
  DispatchPlan plan_;
  HostBuffer workspace_;
  std::vector<GroupTokens> tokens_;
  std::vector<std::uint16_t> x_;
  std::vector<float> rows_;
  std::vector<float> y_;
};

TEST(DispatchOrder, DispatchAndCombineTakeTurns) {
  OneRank rank;
  EXPECT_THAT(rank.combine(rank.y()), HasSubstr("complete outputs are not reduced again"));
  EXPECT_EQ(rank.dispatch(rank.input()), "");
  EXPECT_THAT(rank.dispatch(rank.input()), HasSubstr("dispatch was called twice"));
  EXPECT_EQ(rank.combine(rank.y()), "");
  EXPECT_THAT(rank.combine(rank.y()), HasSubstr("complete outputs are not reduced again"));
  EXPECT_EQ(rank.dispatch(rank.input()), "");
}

TEST(DispatchOrder, AWrongArgumentIsNamed) {
  OneRank rank;
  DispatchInput input = rank.input();
  input.x.dtype = DType::kF16;
  EXPECT_THAT(rank.dispatch(input), HasSubstr("x must be BF16 [5, 48], got F16 [5, 48]"));
  input = rank.input();
  input.x.data = nullptr;
  EXPECT_THAT(rank.dispatch(input), HasSubstr("5 rows and a null pointer"));
  input = rank.input();
  input.routing.topk_idx = input.routing.topk_idx.first(19);
  EXPECT_THAT(rank.dispatch(input), HasSubstr("must hold 5 x 4 values, got 19 and 20"));
  rank.missing_bytes = 1;
  EXPECT_THAT(rank.dispatch(rank.input()), HasSubstr("workspace needs"));
  rank.missing_bytes = 0;
  EXPECT_EQ(rank.dispatch(rank.input()), "");
  MatrixView y = rank.y();
  y.rows = 4;
  EXPECT_THAT(rank.combine(y), HasSubstr("y must be F32 [5, 48], got F32 [4, 48]"));
}

TEST(DispatchOrder, AnEmptyStepTakesNullPointers) {
  OneRank rank;
  DispatchInput input;
  input.x = ConstMatrixView(nullptr, DType::kBf16, 0, 48);
  EXPECT_EQ(rank.dispatch(input), "");
  EXPECT_EQ(rank.combine(MatrixView(nullptr, DType::kF32, 0, 48)), "");
}

}  // namespace
}  // namespace halfbyte::test
