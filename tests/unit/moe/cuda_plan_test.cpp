// SPDX-License-Identifier: Apache-2.0
//
// Plans of layers on a CUDA device: pure, so tested without one.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "moe/backends/cuda_sm90_plan.h"
#include "moe/plan.h"
#include "moe/registry.h"

namespace halfbyte {
namespace {

using testing::HasSubstr;

constexpr Device kFirstGpu = {DeviceKind::kCuda, 0};
constexpr DeviceLimits kH200 = {kFirstGpu, 90, 132, 227 * 1024, 0};

// DeepSeek-V3.
MoeSpec deepseek() {
  MoeSpec spec;
  spec.hidden_size = 7168;
  spec.intermediate_size = 2048;
  spec.num_experts = 256;
  spec.top_k = 8;
  return spec;
}

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 528;
  spec.intermediate_size = 96;
  spec.num_experts = 16;
  spec.top_k = 2;
  return spec;
}

Result<MoePlan> plan_of(const MoeSpec& spec,
                        std::int64_t capacity_tokens,
                        const DeviceLimits& limits = kH200,
                        MoeOptions options = {},
                        int num_ranks = 1) {
  options.capacity_tokens = capacity_tokens;
  NoticeSink notices;
  return make_moe_plan(spec, options, limits, num_ranks, 0, notices);
}

std::string refusal(const Result<MoePlan>& plan) {
  return plan.ok() ? "ok" : plan.status().to_string();
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
  EXPECT_THAT(text, HasSubstr("kernels: from 1 tokens: moe_decode_bf16_nvfp4"));
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
         {&plan->workspace, &plan->experts.workspace, &plan->dispatch.workspace}) {
      std::size_t end = 0;
      for (const WorkspaceLayout::Entry& entry : layout->entries()) {
        EXPECT_GE(entry.offset, end) << entry.name;
        EXPECT_EQ(entry.offset % 64, 0U) << entry.name;
        end = entry.offset + entry.bytes;
      }
    }
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

// warm_up launches this list: no step may take what is not in it.
TEST(CudaPlan, TheListOfStepsHoldsWhatEachStepLaunches) {
  const auto plan = plan_of(deepseek(), 2000);
  ASSERT_TRUE(plan.ok()) << refusal(plan);
  const std::vector<Sm90Range> ranges = list_sm90_steps(plan->experts);
  EXPECT_EQ(ranges.front().first_tokens, 1);
  for (std::int64_t tokens = 1; tokens <= 2000; ++tokens) {
    const Sm90Step step = choose_sm90_step(plan->experts, tokens);
    EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&step](const Sm90Range& range) {
      return range.step.launches_the_same(step);
    })) << tokens;
  }
}

TEST(CudaPlan, SaysWhatTheKernelsDoNotTake) {
  const auto of = [](const auto& change) {
    MoeSpec spec = small_spec();
    change(spec);
    return refusal(plan_of(spec, 16));
  };
  EXPECT_THAT(of([](MoeSpec& s) { s.x_dtype = DType::kF32; }), HasSubstr("x is F32, want BF16"));
  EXPECT_THAT(of([](MoeSpec& s) { s.expert_format = WeightFormat::kFp8; }),
              HasSubstr("experts are fp8, want nvfp4"));
  EXPECT_THAT(of([](MoeSpec& s) {
                s.top_k = 1;
                s.apply_router_weight_on_input = true;
              }),
              HasSubstr("router weights on the input"));
}

TEST(CudaPlan, SaysWhichOptionItCannotKeep) {
  MoeOptions options;
  options.activation_mode = ActivationMode::kW4a4;
  EXPECT_THAT(refusal(plan_of(small_spec(), 16, kH200, options)),
              HasSubstr("cuda_sm90: mode w4a4 has no kernels here yet: use w4a16"));
  options.activation_mode = ActivationMode::kAuto;
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
