// SPDX-License-Identifier: Apache-2.0
//
// Plans of layers on a CUDA device: pure, so tested without one.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "moe/backends/cuda_sm90_fp8_plan.h"
#include "moe/backends/cuda_sm90_plan.h"
#include "moe/plan.h"
#include "moe/registry.h"
#include "unit/moe/cuda_plan_cases.h"

namespace halfbyte {
namespace {

using test::deepseek;
using test::refusal;
using test::small_spec;
using testing::HasSubstr;

constexpr Device kFirstGpu = {DeviceKind::kCuda, 0};
constexpr DeviceLimits kH200 = {kFirstGpu, 90, 132, 227 * 1024, 0};

Result<MoePlan> plan_of(const MoeSpec& spec,
                        std::int64_t capacity_tokens,
                        const DeviceLimits& limits = kH200,
                        const MoeOptions& options = {},
                        int num_ranks = 1) {
  return test::make_plan(spec, capacity_tokens, limits, options, num_ranks);
}

TEST(CudaPlan, AutoTakesHopperForALayerThatLivesThere) {
  const auto plan = plan_of(deepseek(), 512);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  EXPECT_EQ(plan->transport, "local");
  EXPECT_EQ(plan->experts.backend, "cuda_sm90");
  EXPECT_EQ(plan->dispatch.dispatcher, "local");
  EXPECT_EQ(plan->dispatch.device, kFirstGpu);
  EXPECT_EQ(plan->experts.mode, ActivationMode::kW4a16);
}

// Section 3: the plan states the formats. Rows are as narrow as y.
TEST(CudaPlan, StatesItsFormats) {
  MoeSpec spec = small_spec();
  auto plan = plan_of(spec, 64);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  EXPECT_EQ(plan->experts.x_format, "bf16");
  EXPECT_EQ(plan->experts.h_format, "bf16");
  EXPECT_EQ(plan->experts.row_dtype, DType::kBf16);
  EXPECT_EQ(plan->experts.prepared_layout,
            std::string(sm90::kLayoutName) + " v" + std::to_string(sm90::kLayoutVersion));
  // At least 9/16 byte a weight.
  EXPECT_GE(plan->experts.prepared_bytes, 16 * 3 * 528 * 96 / 16 * 9);
  const std::string text = describe(*plan);
  EXPECT_THAT(text, HasSubstr("device: CUDA device 0, compute capability 9.0, 132"));
  EXPECT_THAT(text, HasSubstr("activation math: hardware exp2"));
  EXPECT_THAT(text, HasSubstr("kernels: from 1 tokens: moe_decode_nvfp4"));
  spec.y_dtype = DType::kF32;
  EXPECT_EQ(plan_of(spec, 64)->experts.row_dtype, DType::kF32);
}

TEST(CudaPlan, WorkspaceGrowsWithCapacityAndNeverOverlaps) {
  std::size_t last = 0;
  for (const std::int64_t capacity : {1, 2, 17, 64, 256, 1000, 4096, 16384}) {
    const auto plan = plan_of(deepseek(), capacity);
    ASSERT_TRUE(plan.ok()) << refusal(plan);
    EXPECT_GE(plan->workspace.total_bytes(), last) << capacity;
    last = plan->workspace.total_bytes();
    for (const WorkspaceLayout* layout :
         {&plan->workspace, &plan->experts.workspace, &plan->dispatch.workspace})
      test::expect_no_overlap(*layout, 64);
  }
}

// docs/performance-sm90.md: up to 20 rows an expert one launch is faster.
TEST(CudaPlan, FewRowsAnExpertDecodeAndManyPrefill) {
  const auto plan = plan_of(deepseek(), 16384);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  for (const std::int64_t tokens : {1, 64, 512})
    EXPECT_TRUE(choose_sm90_step(plan->experts, tokens).decode) << tokens;
  for (const std::int64_t tokens : {1024, 4096, 16384}) {
    const Sm90Step step = choose_sm90_step(plan->experts, tokens);
    EXPECT_FALSE(step.decode) << tokens;
    EXPECT_EQ(step.gate_up_config.tile_tokens, step.down_config.tile_tokens);
  }
}

// What decode writes of h, for the largest step that takes it, lies inside the buffer; so do the
// tiles of every width that prefill may take.
TEST(CudaPlan, EveryStepFitsTheWorkspace) {
  for (const std::int64_t capacity : {1, 100, 700, 5120}) {
    const auto plan = plan_of(deepseek(), capacity);
    ASSERT_TRUE(plan.ok()) << refusal(plan);
    const ExpertPlan& experts = plan->experts;
    const auto h_bytes = static_cast<std::int64_t>(experts.workspace.entries()[1].bytes);
    const auto x_bytes = static_cast<std::int64_t>(experts.workspace.entries()[2].bytes);
    for (std::int64_t tokens = 1; tokens <= capacity; ++tokens) {
      const Sm90Step step = choose_sm90_step(experts, tokens);
      if (step.decode) {
        EXPECT_LE(tokens * 8 * step.decode_shape.h_cols() * 2, h_bytes) << tokens;
        continue;
      }
      const int width = step.gate_up_config.tile_tokens;
      const sm90::TokenTiles h = {width, step.gate_up.output_cols()};
      const sm90::TokenTiles x = {width, step.gate_up.weights.padded_cols()};
      EXPECT_LE(h.max_tiles(tokens * 8, 256) * h.tile_bytes(), h_bytes) << tokens;
      EXPECT_LE(x.max_tiles(tokens * 8, 256) * x.tile_bytes(), x_bytes) << tokens;
    }
  }
}

// The prefill kernel takes 384 experts on a rank, decode 512: 400 experts decode at every size.
TEST(CudaPlan, ManyExpertsDecodeAtEverySize) {
  MoeSpec spec = small_spec();
  spec.num_experts = 400;
  const auto plan = plan_of(spec, 16384);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  EXPECT_TRUE(choose_sm90_step(plan->experts, 16384).decode);
  spec.num_experts = 513;
  EXPECT_THAT(refusal(plan_of(spec, 16)), HasSubstr("513 experts on one rank"));
}

TEST(CudaPlan, TheListOfStepsHoldsWhatEachStepLaunches) {
  const auto plan = plan_of(deepseek(), 2000);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  const std::vector<Sm90Range> ranges = list_sm90_steps(plan->experts);
  EXPECT_EQ(ranges.front().first_tokens, 1);
  test::expect_lists_every_step(ranges, 2000, 1, [&plan](std::int64_t tokens) {
    return choose_sm90_step(plan->experts, tokens);
  });
}

MoeOptions in_mode(ActivationMode mode) {
  MoeOptions options;
  options.activation_mode = mode;
  return options;
}

// Section 3: x and h lie on the NVFP4 grid, activated with the portable sigmoid.
TEST(CudaPlan, QuantizedModesStateTheirFormats) {
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    const auto plan = plan_of(small_spec(), 64, kH200, in_mode(mode));
    ASSERT_TRUE(plan.ok()) << refusal(plan);
    EXPECT_EQ(plan->experts.mode, mode);
    EXPECT_EQ(plan->experts.x_format, "nvfp4");
    EXPECT_EQ(plan->experts.h_format, "nvfp4");
    EXPECT_EQ(plan->experts.activation_math, "portable");
    EXPECT_EQ(plan->experts.row_dtype, DType::kBf16);
  }
}

// With one scale for h few rows an expert are one launch; a scale a route is known after a whole
// row.
TEST(CudaPlan, QuantizedModesChooseTheirKernels) {
  const auto fixed = plan_of(deepseek(), 4096, kH200, in_mode(ActivationMode::kW4a4));
  ASSERT_TRUE(fixed.ok()) << refusal(fixed);
  EXPECT_TRUE(choose_sm90_step(fixed->experts, 64).decode);
  EXPECT_TRUE(choose_sm90_step(fixed->experts, 64).decode_shape.tokens ==
              sm90::DecodeTokens::kGrid);
  const Sm90Step prefill = choose_sm90_step(fixed->experts, 1024);
  EXPECT_EQ(prefill.gate_up.output, sm90::GemmOutput::kQuantized);
  EXPECT_EQ(prefill.gate_up_config.tile_tokens, 64);
  EXPECT_EQ(prefill.down.output, sm90::GemmOutput::kRows);
  const auto dynamic = plan_of(deepseek(), 4096, kH200, in_mode(ActivationMode::kW4a4Dynamic));
  ASSERT_TRUE(dynamic.ok()) << refusal(dynamic);
  for (const std::int64_t tokens : {1, 64, 4096}) {
    const Sm90Step step = choose_sm90_step(dynamic->experts, tokens);
    EXPECT_FALSE(step.decode) << tokens;
    EXPECT_EQ(step.gate_up.output, sm90::GemmOutput::kRows);
    EXPECT_EQ(step.down.output, sm90::GemmOutput::kScaledRows);
    EXPECT_THAT(step.to_string(), HasSubstr("activate_tiles between"));
  }
}

TEST(CudaPlan, QuantizedModesHaveRoomForWhatTheyKeep) {
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    const auto plan = plan_of(deepseek(), 700, kH200, in_mode(mode));
    ASSERT_TRUE(plan.ok()) << refusal(plan);
    const auto bytes = [&plan](std::size_t entry) {
      return static_cast<std::int64_t>(plan->experts.workspace.entries()[entry].bytes);
    };
    const bool dynamic = mode == ActivationMode::kW4a4Dynamic;
    EXPECT_EQ(bytes(3), 700 * 7168 * 2);                               // x_grid
    EXPECT_EQ(bytes(4), dynamic ? 700 * 4 : 0);                        // x_row_scale
    EXPECT_EQ(bytes(5), dynamic ? std::int64_t{5600} * 4096 * 4 : 0);  // sums
    EXPECT_EQ(bytes(6), dynamic ? 5600 * 4 : 0);                       // row_alpha
    test::expect_no_overlap(plan->experts.workspace, 64);
    for (std::int64_t tokens = 1; tokens <= 700; tokens += 3) {
      const Sm90Step step = choose_sm90_step(plan->experts, tokens);
      if (step.decode) continue;
      const sm90::TokenTiles h = {step.down_config.tile_tokens, step.down.weights.padded_cols()};
      EXPECT_LE(h.max_tiles(tokens * 8, 256) * h.tile_bytes(), bytes(1)) << tokens;
    }
  }
  EXPECT_EQ(plan_of(deepseek(), 700)->experts.workspace.entries()[3].bytes, 0U);
}

TEST(CudaPlan, DynamicScalesHaveLimitsOfTheirOwn) {
  const MoeOptions options = in_mode(ActivationMode::kW4a4Dynamic);
  MoeSpec spec = small_spec();
  spec.num_experts = 400;
  EXPECT_THAT(refusal(plan_of(spec, 16, kH200, options)), HasSubstr("400 experts on one rank"));
  spec = small_spec();
  spec.intermediate_size = 32784;
  EXPECT_THAT(refusal(plan_of(spec, 16, kH200, options)),
              HasSubstr("w4a4_dynamic takes an intermediate size up to 32768, got 32784"));
}

// w4a8: other weights, other kernels, and room for both operands, as rows or as tiles, and h
// between them.
TEST(CudaPlan, Fp8StatesItsFormatsAndHasRoom) {
  const auto plan = plan_of(deepseek(), 700, kH200, in_mode(ActivationMode::kW4a8));
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  const ExpertPlan& experts = plan->experts;
  EXPECT_EQ(experts.x_format, "e4m3");
  EXPECT_EQ(experts.h_format, "e4m3");
  EXPECT_THAT(experts.prepared_layout, HasSubstr("sm90_fp8_fragment"));
  EXPECT_THAT(experts.kernels.front(), HasSubstr("moe_decode_nvfp4: 128 rows x 8 tokens"));
  EXPECT_THAT(experts.kernels.front(), HasSubstr("after e4m3_rows"));
  EXPECT_EQ(choose_sm90_fp8_step(experts, 700).gate_up_config.tile_tokens, 64);
  EXPECT_THAT(experts.kernels.back(), HasSubstr("grouped_gemm_fp8_nvfp4: 128 rows x 64 tokens"));
  test::expect_no_overlap(experts.workspace, 64);
  const auto bytes = [&experts](std::size_t entry) {
    return static_cast<std::int64_t>(experts.workspace.entries()[entry].bytes);
  };
  EXPECT_EQ(bytes(3), std::int64_t{5600} * 2048 * 4);  // h
  for (std::int64_t tokens = 1; tokens <= 700; tokens += 3) {
    const Sm90Fp8Step step = choose_sm90_fp8_step(experts, tokens);
    if (step.decode) {
      EXPECT_LE(tokens * 7168 * 2, bytes(1)) << tokens;
      EXPECT_LE(tokens * sm90::block_scale_stride(7168) * 4, bytes(2)) << tokens;
      EXPECT_LE(tokens * 8 * step.decode_shape.h_cols() * 4, bytes(3)) << tokens;
      EXPECT_LE(tokens * 8 * step.decode_shape.h_cols() * 2, bytes(4)) << tokens;
      EXPECT_LE(tokens * 8 * sm90::block_scale_stride(2048) * 4, bytes(5)) << tokens;
      continue;
    }
    const sm90::TokenTiles x = {step.gate_up_config.tile_tokens, 7168, 1};
    EXPECT_LE(x.max_tiles(tokens * 8, 256) * x.tile_bytes(), bytes(1)) << tokens;
    EXPECT_LE(x.max_tiles(tokens * 8, 256) * x.tile_bytes() / 32, bytes(2)) << tokens;
  }
}

TEST(CudaPlan, SaysWhatTheKernelsDoNotTake) {
  test::expect_common_refusals(small_spec(), kH200);
}

TEST(CudaPlan, SaysWhichOptionItCannotKeep) {
  MoeOptions options;
  options.exact_float32 = true;
  EXPECT_THAT(refusal(plan_of(small_spec(), 16, kH200, options)), HasSubstr("--dtype float32"));
}

TEST(CudaPlan, NamesADeviceOfAnotherKind) {
  DeviceLimits ampere = kH200;
  ampere.compute_capability = 80;
  EXPECT_THAT(refusal(plan_of(small_spec(), 16, ampere)),
              HasSubstr("CUDA device 0 has compute capability 80, want 90 (Hopper)"));
}

// The host's backends do not reach into a device.
TEST(CudaPlan, HostBackendsRefuseALayerOnADevice) {
  MoeOptions options;
  options.runner_backend = "cpu";
  EXPECT_THAT(refusal(plan_of(small_spec(), 16, kH200, options)),
              HasSubstr("cpu runs on the host, the layer lives on CUDA device 0"));
}

TEST(CudaPlan, SeveralRanksWaitForATransportOfDevices) {
  MoeOptions options;
  options.runner_backend = "cuda_sm90";
  options.transport = "in_process";
  options.ep_size = 2;
  const std::string in_process = refusal(plan_of(small_spec(), 16, kH200, options, 2));
  EXPECT_THAT(in_process, HasSubstr("a layer on a CUDA device is one rank until nccl"));
  options.transport = "auto";
  EXPECT_FALSE(plan_of(small_spec(), 16, kH200, options, 2).ok());
}

// A host layer that names the backend learns what is missing: the build, the device, or the option.
TEST(CudaPlan, AHostLayerLearnsWhatIsMissing) {
  MoeOptions options;
  options.runner_backend = "cuda_sm90";
  const std::string reason = refusal(plan_of(small_spec(), 16, {}, options));
  EXPECT_THAT(reason, testing::AnyOf(HasSubstr("cuda_sm90: not built"),
                                     HasSubstr("cuda_sm90: no CUDA device"),
                                     HasSubstr("MoeOptions::device")));
  EXPECT_EQ(reason.find("cuda_sm90: "), reason.rfind("cuda_sm90: ")) << reason;
}

TEST(CudaPlan, ALayerOnADeviceThatIsNotThereIsRefused) {
  MoeOptions options;
  options.device = {DeviceKind::kCuda, 99};
  options.capacity_tokens = 4;
  const auto layer = MoeLayer::create(small_spec(), options);
  ASSERT_FALSE(layer.ok());
  EXPECT_EQ(layer.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(layer.status().to_string(), HasSubstr("CUDA device 99: "));
}

}  // namespace
}  // namespace halfbyte
