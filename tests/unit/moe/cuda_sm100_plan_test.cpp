// SPDX-License-Identifier: Apache-2.0
//
// Plans of layers on a Blackwell GPU: pure, so tested without one.
#include "moe/backends/cuda_sm100_plan.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "formats/sm100_exchange.h"
#include "moe/plan.h"
#include "unit/moe/cuda_plan_cases.h"

namespace halfbyte {
namespace {

using test::refusal;
using testing::HasSubstr;

constexpr DeviceLimits kB200 = {{DeviceKind::kCuda, 0}, 100, 148, 227 * 1024, 0};

// As checkpoints do whose activations were calibrated.
MoeSpec declared(MoeSpec spec) {
  spec.declares_activation_quantization = true;
  return spec;
}
MoeSpec deepseek() {
  return declared(test::deepseek());
}
MoeSpec small_spec() {
  return declared(test::small_spec());
}

Result<MoePlan> plan_of(const MoeSpec& spec,
                        std::int64_t capacity_tokens,
                        const MoeOptions& options = {},
                        const DeviceLimits& limits = kB200) {
  return test::make_plan(spec, capacity_tokens, limits, options);
}

// nvfp4-moe section 3: w4a4 where the checkpoint declares it.
TEST(CudaSm100Plan, AutoTakesBlackwellInTheCheckpointsMode) {
  const auto plan = plan_of(deepseek(), 512);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  EXPECT_EQ(plan->experts.backend, "cuda_sm100");
  EXPECT_EQ(plan->experts.mode, ActivationMode::kW4a4);
  EXPECT_EQ(plan->dispatch.dispatcher, "local");
  EXPECT_EQ(plan->experts.x_format, "nvfp4");
  EXPECT_EQ(plan->experts.h_format, "nvfp4");
  EXPECT_EQ(plan->experts.row_dtype, DType::kF32);
  const std::string text = describe(*plan);
  EXPECT_THAT(text, HasSubstr("activation math: portable"));
  EXPECT_THAT(text, HasSubstr("gate_up_interleave_64_blocked_128x4 v1, blocked_128x4 v1"));
  EXPECT_THAT(text,
              HasSubstr("kernels: from 1 tokens: grouped_gemm_nvfp4_nvfp4: tiles of 128 x 64"));
}

// 9/16 byte a weight, nothing padded at these sizes.
TEST(CudaSm100Plan, CountsThePreparedBytes) {
  const auto plan = plan_of(deepseek(), 16);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  EXPECT_EQ(plan->experts.prepared_bytes, std::int64_t{256} * 3 * 7168 * 2048 / 16 * 9);
}

// The bytes are those that FlashInfer's kernels take, wherever 32 divides the columns.
TEST(CudaSm100Plan, HasTheLayoutsOfTheExchange) {
  for (const bool gated : {true, false}) {
    MoeSpec spec = deepseek();
    spec.intermediate_size = 352;
    if (!gated) spec.activation.function = ActivationFunction::kRelu2;
    const auto plan = plan_of(spec, 16);
    ASSERT_TRUE(plan.ok()) << refusal(plan);
    const auto exchange = make_sm100_layouts(256, 7168, 352, gated);
    ASSERT_TRUE(exchange.ok());
    for (const auto& [own, theirs] : {std::pair(sm100_gate_up(plan->experts), exchange->gate_up),
                                      std::pair(sm100_down(plan->experts), exchange->down)}) {
      EXPECT_EQ(own.layout, theirs.layout);
      EXPECT_EQ(own.padded_half_rows, theirs.padded_half_rows);
      EXPECT_EQ(own.padded_cols, theirs.padded_cols);
      EXPECT_EQ(own.scale_bytes(), theirs.scale_bytes());
    }
  }
}

TEST(CudaSm100Plan, WorkspaceGrowsWithCapacityAndNeverOverlaps) {
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    MoeOptions options;
    options.activation_mode = mode;
    std::size_t last = 0;
    for (const std::int64_t capacity : {1, 2, 17, 64, 256, 1000, 4096, 16384}) {
      const auto plan = plan_of(deepseek(), capacity, options);
      ASSERT_TRUE(plan.ok()) << refusal(plan);
      EXPECT_GE(plan->workspace.total_bytes(), last) << capacity;
      last = plan->workspace.total_bytes();
      test::expect_no_overlap(plan->experts.workspace, 128);
    }
  }
}

// By name, so that a buffer that moves in the list is found here.
TEST(CudaSm100Plan, TheWorkspacesNamesAreWhatIsInThem) {
  const auto plan = plan_of(small_spec(), 100);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  const auto entry = [&plan](std::string_view name) {
    for (const WorkspaceLayout::Entry& e : plan->experts.workspace.entries()) {
      if (e.name == name) return e;
    }
    return WorkspaceLayout::Entry{};
  };
  const Sm100Workspace at = sm100_workspace(plan->experts);
  EXPECT_EQ(at.first_block, entry("first_block").offset);
  EXPECT_EQ(at.scratch, entry("scratch").offset);
  EXPECT_EQ(at.sums, entry("sums").offset);
  EXPECT_EQ(at.h_row_scale, entry("h_row_scale").offset);
  EXPECT_EQ(entry("x_codes").bytes, 100U * 528 / 2);
  EXPECT_EQ(entry("x_scale").bytes, 100U * 528 / 16);
  EXPECT_EQ(entry("x_row_scale").bytes, 0U);  // w4a4 has one scale
  EXPECT_EQ(entry("route_codes").bytes, 200U * 544 / 2);
  EXPECT_EQ(entry("sums").bytes, 200U * 256 * 4);  // two halves of 96, padded to 128
  EXPECT_EQ(entry("h_codes").bytes, 200U * 128 / 2);
  EXPECT_EQ(entry("h_scale").bytes, (200U + 16 * 127) / 128 * 128 * 8);
}

TEST(CudaSm100Plan, TheListOfStepsHoldsWhatEachStepLaunches) {
  const auto plan = plan_of(deepseek(), 16384);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  const std::vector<Sm100Range> ranges = list_sm100_steps(plan->experts);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].step.config.tile_tokens, sm100::kNarrowTile);
  EXPECT_EQ(ranges[1].step.config.tile_tokens, sm100::kWideTile);
  test::expect_lists_every_step(ranges, 16384, 7, [&plan](std::int64_t tokens) {
    return choose_sm100_step(plan->experts, tokens);
  });
}

TEST(CudaSm100Plan, SaysWhatTheKernelsDoNotTake) {
  MoeSpec spec = small_spec();
  test::expect_common_refusals(spec, kB200);
  spec.num_experts = 513;
  EXPECT_THAT(refusal(plan_of(spec, 16)), HasSubstr("513 experts on one rank"));
  EXPECT_THAT(refusal(plan_of(test::small_spec(), 16)),
              HasSubstr("cuda_sm100: mode w4a16 has no kernels here: use w4a4_dynamic"));
}

TEST(CudaSm100Plan, WantsComputeCapabilityTenPointZero) {
  MoeOptions options;
  options.runner_backend = "cuda_sm100";
  for (const int other : {90, 103, 120}) {
    DeviceLimits limits = kB200;
    limits.compute_capability = other;
    EXPECT_THAT(refusal(plan_of(small_spec(), 16, options, limits)),
                HasSubstr("compute capability " + std::to_string(other) +
                          ", want 100 (Blackwell; compiled, never run on such a device)"));
  }
}

}  // namespace
}  // namespace halfbyte
