// SPDX-License-Identifier: Apache-2.0
//
// What backends say before anything runs: reasons, formats, layouts, sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moe/expert_backend.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<ExpertBackend> find(std::string_view name) {
  for (const auto& backend : list_expert_backends()) {
    if (backend->name() == name) return backend;
  }
  return nullptr;
}

ExpertPlan request_of(const MoeSpec& spec, ActivationMode mode, std::int64_t capacity) {
  ExpertPlan request;
  request.spec = spec;
  request.mode = mode;
  request.shard = {.num_local_experts = spec.num_experts,
                   .intermediate_size = spec.intermediate_size};
  request.limits.num_threads = 2;
  request.capacity_tokens = capacity;
  return request;
}

TEST(BackendAnswers, TheListIsBestFirstAndHoldsWhatIsNotBuilt) {
  std::vector<std::string> names;
  for (const auto& backend : list_expert_backends())
    names.emplace_back(backend->name());
  EXPECT_EQ(names, (std::vector<std::string>{"cuda_sm100", "cuda_sm90", "cpu", "reference"}));
}

// nvfp4-moe section 3: every mode, and w4a16 unless another is asked for.
TEST(BackendAnswers, TheCpuRunsEveryModeAndChoosesW4a16) {
  const MoeSpec spec = test::spec_of({});
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                    ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8})
    EXPECT_TRUE(find("cpu")->can_run(spec, mode).ok()) << activation_mode_name(mode);
  EXPECT_EQ(find("cpu")->resolve_auto(spec), ActivationMode::kW4a16);
}

TEST(BackendAnswers, TheReferenceWantsAnExplicitMode) {
  const MoeSpec spec = test::spec_of({});
  const auto backend = find("reference");
  const Status status = backend->can_run(spec, backend->resolve_auto(spec));
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--moe-activation-mode"));
  EXPECT_TRUE(backend->can_run(spec, ActivationMode::kW4a8).ok());
}

TEST(BackendAnswers, OtherFormatsRunWithActivationsAsGivenOnly) {
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kBf16}) {
    const MoeSpec spec = test::spec_of({.format = format});
    for (const char* name : {"cpu", "reference"}) {
      EXPECT_TRUE(find(name)->can_run(spec, ActivationMode::kW4a16).ok()) << name;
      EXPECT_EQ(find(name)->can_run(spec, ActivationMode::kW4a4).code(), StatusCode::kUnsupported)
          << name;
    }
  }
}

// nvfp4-moe section 3: the plan states the format of x, of h and of the rows.
TEST(BackendAnswers, ThePlanStatesItsFormats) {
  const MoeSpec spec = test::spec_of({});
  ExpertPlan request = request_of(spec, ActivationMode::kW4a16, 8);
  const auto expect_formats = [&](const char* x_format, const char* h_format) {
    const Result<ExpertPlan> plan = find("cpu")->plan(request);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().x_format, x_format);
    EXPECT_EQ(plan.value().h_format, h_format);
    EXPECT_EQ(plan.value().row_dtype, DType::kF32);
    EXPECT_EQ(plan.value().prepared_layout, "cpu_panel16 v1");
  };
  expect_formats("split15", "split15");
  request.exact_float32 = true;  // --dtype float32: nothing narrows activations
  expect_formats("bf16", "fp32");
  request.mode = ActivationMode::kW4a4;
  expect_formats("nvfp4", "nvfp4");
  request.mode = ActivationMode::kW4a8;
  expect_formats("int8", "int8");
  request.mode = ActivationMode::kW4a16;
  request.exact_float32 = false;
  request.spec.expert_format = WeightFormat::kFp8;  // split15 is a form of NVFP4's kernels
  expect_formats("bf16", "fp32");
}

// H 64, I 32 (padded to 64 columns in down), 4 experts: gate and up 2 x 2 panels of 576 bytes, down
// 4 panels of 576.
TEST(BackendAnswers, PreparedBytesCountThePadding) {
  const MoeSpec spec = test::spec_of({});
  const Result<ExpertPlan> plan = find("cpu")->plan(request_of(spec, ActivationMode::kW4a16, 8));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().prepared_bytes, 4 * (2 * 2 + 4) * 576);
}

TEST(BackendAnswers, WorkspaceGrowsWithCapacityAndNeverOverlaps) {
  const MoeSpec spec = test::spec_of({});
  for (const char* name : {"cpu", "reference"}) {
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4Dynamic}) {
      std::size_t last = 0;
      for (const std::int64_t capacity : {0, 1, 7, 64, 1000}) {
        const Result<ExpertPlan> plan = find(name)->plan(request_of(spec, mode, capacity));
        ASSERT_TRUE(plan.ok());
        const WorkspaceLayout& layout = plan.value().workspace;
        EXPECT_GE(layout.total_bytes(), last);
        last = layout.total_bytes();
        std::size_t end = 0;
        for (const WorkspaceLayout::Entry& entry : layout.entries()) {
          EXPECT_GE(entry.offset, end) << entry.name;
          end = entry.offset + entry.bytes;
        }
        EXPECT_LE(end, layout.total_bytes());
      }
    }
  }
}

// Whatever number of routes the caller asks for.
TEST(BackendAnswers, APlanForNoTokensHoldsNoRoutes) {
  const MoeSpec spec = test::spec_of({});
  for (const char* name : {"cpu", "reference"}) {
    ExpertPlan request = request_of(spec, ActivationMode::kW4a16, 0);
    request.max_routes = 8;
    const Result<ExpertPlan> plan = find(name)->plan(request);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().max_routes, 0) << name;
  }
}

TEST(BackendAnswers, AnExpertOfTheWrongShapeIsRefusedByName) {
  const test::TestLayer layer = test::random_layer({}, 1);
  const test::TestLayer wide = test::random_layer({.intermediate_size = 48}, 1);
  for (const char* name : {"cpu", "reference"}) {
    test::BackendRun run(find(name), layer, ActivationMode::kW4a16, 1);
    test::TestLayer mixed = layer;
    mixed.experts[2].down = wide.experts[2].down;
    const Status status = run.load(mixed);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "expert 2: down: want 64 x 32, got 64 x 48") << name;
  }
}

TEST(BackendAnswers, ABlockScaleThatIsNotANumberNamesExpertProjectionRowAndBlock) {
  test::TestLayer layer = test::random_layer({}, 1);
  test::BackendRun run(find("cpu"), layer, ActivationMode::kW4a16, 1);
  layer.experts[3].up.block_scale[4 * 5 + 2] = 0x7F;
  const Status status = run.load(layer);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_EQ(status.message(), "expert 3: up: row 5 block 2: block scale 0x7F, want 0x00..0x7E");
}

}  // namespace
}  // namespace halfbyte
