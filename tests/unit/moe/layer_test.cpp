// SPDX-License-Identifier: Apache-2.0
//
// MoeLayer on one rank with the reference backend; expected rows come from kernels/reference,
// operation by operation.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "halfbyte/moe.h"
#include "unit/moe/layer_fixture.h"

namespace halfbyte {
namespace {

using test::random_experts;
using test::random_rows;
using test::RandomExpert;
using test::reference_token;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 48;
  spec.num_experts = 6;
  spec.top_k = 2;
  spec.x_dtype = DType::kF32;
  spec.y_dtype = DType::kF32;
  return spec;
}

MoeOptions reference_options(ActivationMode mode = ActivationMode::kW4a16) {
  MoeOptions options;
  options.runner_backend = "reference";
  options.activation_mode = mode;
  options.capacity_tokens = 8;
  return options;
}

struct Step {
  std::vector<float> x, y, weights;
  std::vector<std::int32_t> idx;
  std::int64_t num_tokens = 0;

  Step(const MoeSpec& spec, std::int64_t tokens, unsigned seed)
      : x(random_rows(tokens * spec.hidden_size, seed)), y(x.size(), -7.0F), num_tokens(tokens) {
    std::mt19937 rng(seed);
    for (std::int64_t i = 0; i < tokens * spec.top_k; ++i) {
      idx.push_back(static_cast<std::int32_t>(rng() % static_cast<unsigned>(spec.num_experts)));
      weights.push_back(0.125F * static_cast<float>(1 + rng() % 7));
    }
  }
  Routing routing() const { return {idx, weights}; }
  Status run(MoeLayer& layer, const MoeSpec& spec, const SharedExpert& shared = {}) {
    return layer.run({x.data(), DType::kF32, num_tokens, spec.hidden_size}, routing(), shared,
                     {y.data(), DType::kF32, num_tokens, spec.hidden_size});
  }
};

class Layer {
 public:
  Layer(const MoeSpec& spec, const MoeOptions& options, const ExpertInputScales& scales = {})
      : spec_(spec) {
    auto layer = MoeLayer::create(spec, options, scales);
    EXPECT_TRUE(layer.ok()) << (layer.ok() ? "" : layer.status().to_string());
    if (layer.ok()) layer_ = std::move(*layer);
  }
  void load(const std::vector<std::unique_ptr<RandomExpert>>& experts) {
    for (std::size_t e = 0; e < experts.size(); ++e) {
      const Status status = layer_->load_expert(static_cast<std::int64_t>(e), experts[e]->view());
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const Status status = layer_->finish_loading();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  MoeLayer& operator*() { return *layer_; }
  MoeLayer* operator->() { return layer_.get(); }

 private:
  MoeSpec spec_;
  std::unique_ptr<MoeLayer> layer_;
};

void expect_reference(const MoeSpec& spec,
                      ActivationMode mode,
                      const std::vector<std::unique_ptr<RandomExpert>>& experts,
                      const Step& step,
                      float s1 = 1.0F,
                      float s2 = 1.0F) {
  const auto h = static_cast<std::size_t>(spec.hidden_size);
  const auto k = static_cast<std::size_t>(spec.top_k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(step.num_tokens); ++t) {
    const std::vector<float> want = reference_token(
        spec, mode, experts, s1, s2, step.x.data() + t * h, std::span(step.idx).subspan(t * k, k),
        std::span(step.weights).subspan(t * k, k));
    const std::vector<float> got(step.y.begin() + static_cast<std::ptrdiff_t>(t * h),
                                 step.y.begin() + static_cast<std::ptrdiff_t>((t + 1) * h));
    EXPECT_EQ(got, want) << "token " << t;
  }
}

TEST(MoeLayer, RunsEveryModeAsTheReferenceDefinesIt) {
  const MoeSpec spec = small_spec();
  const auto experts = random_experts(spec, 1);
  const ExpertInputScales scales = {{{}, {0.01F}}, {{6}, {.5F, .25F, .125F, 1.0F, 2.0F, .5F}}};
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                    ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    Layer layer(spec, reference_options(mode), scales);
    layer.load(experts);
    Step step(spec, 5, 2);
    const Status status = step.run(*layer, spec);
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_reference(spec, mode, experts, step, 0.01F, 2.0F);
  }
}

TEST(MoeLayer, RunsNonGatedExperts) {
  MoeSpec spec = small_spec();
  spec.activation.function = ActivationFunction::kRelu2;
  const auto experts = random_experts(spec, 3);
  Layer layer(spec, reference_options());
  layer.load(experts);
  Step step(spec, 4, 4);
  ASSERT_TRUE(step.run(*layer, spec).ok());
  expect_reference(spec, ActivationMode::kW4a16, experts, step);
}

// Section 7: ids outside [0, E) are no routes, their weight is never used; duplicates add up.
TEST(MoeLayer, DropsIdsThatAreNoExpert) {
  const MoeSpec spec = small_spec();
  const auto experts = random_experts(spec, 5);
  Layer layer(spec, reference_options());
  layer.load(experts);
  Step step(spec, 4, 6);
  step.idx = {-1, 3, 6, std::numeric_limits<std::int32_t>::max(), 2, 2, -1, -1};
  step.weights[0] = NAN;
  step.weights[6] = INFINITY;
  ASSERT_TRUE(step.run(*layer, spec).ok());
  expect_reference(spec, ActivationMode::kW4a16, experts, step);
  EXPECT_EQ(std::vector<float>(step.y.begin() + 64, step.y.begin() + 128),
            std::vector<float>(64, 0.0F));  // no local route: exactly 0
  EXPECT_EQ(layer->counters().tokens_per_expert, (std::vector<std::int64_t>{0, 0, 2, 1, 0, 0}));
  EXPECT_GT(layer->counters().expert_bytes_read, 0);
  EXPECT_EQ(layer->counters().num_steps, 1);
  EXPECT_EQ(layer->counters().experts_touched, 2);
  EXPECT_EQ(layer->counters().dispatch_bytes, 0);  // one rank
}

TEST(MoeLayer, AddsTheSharedExpertOnce) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 7));
  Step step(spec, 2, 8);
  std::fill(step.weights.begin(), step.weights.end(), 0.0F);
  std::vector<float> ones(step.x.size(), 1.0F);
  SharedExpert shared;
  shared.kind = SharedExpert::Kind::kReplicated;
  shared.rows = {ones.data(), DType::kF32, 2, spec.hidden_size};
  ASSERT_TRUE(step.run(*layer, spec, shared).ok());
  EXPECT_THAT(step.y, Each(1.0F));
}

// Section 7's vector: w = .5, gate 2, up 3 before weighting: 1.09659 on the input, 2.64239 on the
// output. One column of weight 1 in gate and 1.5 in up, x = 2; down is the first column's identity.
TEST(MoeLayer, WeighsTheInputWhenTheSpecSaysSo) {
  MoeSpec spec = small_spec();
  spec.hidden_size = 16;
  spec.intermediate_size = 16;
  spec.num_experts = 1;
  spec.top_k = 1;
  ExpertArrays arrays;
  arrays.num_experts = 1;
  std::vector<std::uint8_t> gate_up(32 * 8, 0);
  gate_up[0] = 0x02;       // gate[0][0] = 1
  gate_up[16 * 8] = 0x03;  // up[0][0] = 1.5
  std::vector<std::uint8_t> down(16 * 8, 0);
  down[0] = 0x02;
  const std::vector<std::uint8_t> gate_up_scale(32, 0x38);
  const std::vector<std::uint8_t> down_scale(16, 0x38);
  arrays.gate_up_codes = gate_up;
  arrays.gate_up_block_scale = gate_up_scale;
  arrays.down_codes = down;
  arrays.down_block_scale = down_scale;
  arrays.gate_up_global_scale = {{}, {1.0F}};
  arrays.down_global_scale = {{}, {1.0F}};
  for (const bool on_input : {true, false}) {
    spec.apply_router_weight_on_input = on_input;
    Layer layer(spec, reference_options());
    ASSERT_TRUE(layer->load_arrays(arrays).ok());
    Step step(spec, 1, 9);
    std::fill(step.x.begin(), step.x.end(), 0.0F);
    step.x[0] = 2.0F;
    step.idx = {0};
    step.weights = {0.5F};
    ASSERT_TRUE(step.run(*layer, spec).ok());
    EXPECT_NEAR(step.y[0], on_input ? 1.09659F : 2.64239F, 5e-6F);
  }
}

// 8.1: T = 0 returns ok and takes null data pointers.
TEST(MoeLayer, NoTokensNeedNoPointers) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 10));
  const Status status = layer->run({nullptr, DType::kF32, 0, spec.hidden_size}, {}, {},
                                   {nullptr, DType::kF32, 0, spec.hidden_size});
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// 10.4: the plan's tokens run, one more fails, and y stays as it was.
TEST(MoeLayer, OneTokenMoreThanTheCapacityLeavesYUntouched) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 11));
  Step fits(spec, 8, 12);
  EXPECT_TRUE(fits.run(*layer, spec).ok());
  Step too_many(spec, 9, 12);
  const Status status = too_many.run(*layer, spec);
  EXPECT_EQ(status.code(), StatusCode::kCapacityExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("9 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds 8"));
  EXPECT_THAT(too_many.y, Each(-7.0F));
  EXPECT_TRUE(fits.run(*layer, spec).ok());  // and the layer still works
}

TEST(MoeLayer, YMayBeX) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 13));
  Step apart(spec, 4, 14);
  ASSERT_TRUE(apart.run(*layer, spec).ok());
  Step same(spec, 4, 14);
  const MatrixView view(same.x.data(), DType::kF32, 4, spec.hidden_size);
  ASSERT_TRUE(layer->run(view, same.routing(), {}, view).ok());
  EXPECT_EQ(same.x, apart.y);
}

TEST(MoeLayer, HonoursRowStrides) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 15));
  Step dense(spec, 3, 16);
  ASSERT_TRUE(dense.run(*layer, spec).ok());
  const std::size_t stride = 80;
  std::vector<float> x(3 * stride, NAN);
  std::vector<float> y(3 * stride, 9.0F);
  for (std::size_t t = 0; t < 3; ++t)
    std::copy_n(dense.x.data() + t * 64, 64, x.data() + t * stride);
  ConstMatrixView x_view(x.data(), DType::kF32, 3, 64);
  MatrixView y_view(y.data(), DType::kF32, 3, 64);
  x_view.row_stride = y_view.row_stride = stride;
  ASSERT_TRUE(layer->run(x_view, dense.routing(), {}, y_view).ok());
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_TRUE(
        std::equal(y.data() + t * stride, y.data() + t * stride + 64, dense.y.data() + t * 64));
    EXPECT_EQ(y[t * stride + 64], 9.0F);
  }
}

TEST(MoeLayer, StartAndFinishAreRunInTwoHalves) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 17));
  Step whole(spec, 4, 18);
  ASSERT_TRUE(whole.run(*layer, spec).ok());
  Step halves(spec, 4, 18);
  const ConstMatrixView x(halves.x.data(), DType::kF32, 4, spec.hidden_size);
  const MatrixView y(halves.y.data(), DType::kF32, 4, spec.hidden_size);
  EXPECT_EQ(layer->finish({}, y).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(layer->start(x, halves.routing()).ok());
  EXPECT_EQ(layer->start(x, halves.routing()).code(), StatusCode::kInvalidArgument);
  std::fill(halves.x.begin(), halves.x.end(), NAN);  // not read after start
  EXPECT_EQ(layer->finish({}, MatrixView(halves.y.data(), DType::kF32, 3, 64)).code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(layer->finish({}, y).ok());
  EXPECT_EQ(halves.y, whole.y);
}

TEST(MoeLayer, MistakesOfTheCallerAreNamedBeforeAnythingRuns) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 19));
  Step step(spec, 2, 20);
  const std::int64_t h = spec.hidden_size;
  const ConstMatrixView x(step.x.data(), DType::kF32, 2, h);
  const MatrixView y(step.y.data(), DType::kF32, 2, h);
  EXPECT_FALSE(layer->run({step.x.data(), DType::kBf16, 2, h}, step.routing(), {}, y).ok());
  EXPECT_FALSE(layer->run({step.x.data(), DType::kF32, 2, 32}, step.routing(), {}, y).ok());
  EXPECT_FALSE(layer->run({nullptr, DType::kF32, 2, h}, step.routing(), {}, y).ok());
  EXPECT_FALSE(layer->run(x, {std::span(step.idx).first(3), step.weights}, {}, y).ok());
  EXPECT_FALSE(layer->run(x, step.routing(), {}, {step.y.data(), DType::kF32, 1, h}).ok());
  SharedExpert shared;
  shared.kind = SharedExpert::Kind::kReplicated;
  EXPECT_FALSE(layer->run(x, step.routing(), shared, y).ok());
  EXPECT_THAT(step.y, Each(-7.0F));
  EXPECT_TRUE(step.run(*layer, spec).ok());
}

TEST(MoeLayer, ExpertsThatWereNeverLoadedAreNamed) {
  const MoeSpec spec = small_spec();
  const auto experts = random_experts(spec, 21);
  Layer layer(spec, reference_options());
  ASSERT_TRUE(layer->load_expert(0, experts[0]->view()).ok());
  ASSERT_TRUE(layer->load_expert(3, experts[3]->view()).ok());
  const Status status = layer->finish_loading();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("never loaded: 1, 2, 4, 5"));
  Step step(spec, 1, 1);
  EXPECT_THAT(step.run(*layer, spec).to_string(), HasSubstr("finish_loading"));
  EXPECT_EQ(layer->load_expert(6, experts[0]->view()).code(), StatusCode::kInvalidArgument);
}

// 12.9: a second load is bit for bit the first; another file gives what a fresh layer gives; a
// refused one leaves the old weights running.
TEST(MoeLayer, ReloadingReplacesWeightsAndEveryDerivedScale) {
  const MoeSpec spec = small_spec();
  const auto mode = ActivationMode::kW4a4;
  const auto a = random_experts(spec, 22);
  const auto b = random_experts(spec, 23);
  const ExpertInputScales scales_a = {{{}, {0.02F}}, {{}, {0.5F}}};
  const ExpertInputScales scales_b = {{{}, {0.01F}}, {{}, {2.0F}}};
  Layer layer(spec, reference_options(mode), scales_a);
  layer.load(a);
  Step first(spec, 4, 24);
  ASSERT_TRUE(first.run(*layer, spec).ok());
  layer.load(a);
  Step again(spec, 4, 24);
  ASSERT_TRUE(again.run(*layer, spec).ok());
  EXPECT_EQ(again.y, first.y);

  ASSERT_TRUE(layer->set_input_scales(scales_b).ok());
  layer.load(b);
  Step second(spec, 4, 24);
  ASSERT_TRUE(second.run(*layer, spec).ok());
  expect_reference(spec, mode, b, second, 0.01F, 2.0F);
}

TEST(MoeLayer, ARefusedExpertLeavesTheOldOneRunning) {
  const MoeSpec spec = small_spec();
  const auto experts = random_experts(spec, 25);
  Layer layer(spec, reference_options());
  layer.load(experts);
  Step before(spec, 4, 26);
  ASSERT_TRUE(before.run(*layer, spec).ok());
  const auto others = random_experts(spec, 27);
  others[0]->up.view.global_scale = NAN;
  const Status status = layer->load_expert(2, others[0]->view());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expert 2: up.global_scale: value nan"));
  Step after(spec, 4, 26);
  ASSERT_TRUE(after.run(*layer, spec).ok());
  EXPECT_EQ(after.y, before.y);
}

// 2.2: the tensor's name and both modes that do without it.
TEST(MoeLayer, MissingInputScalesNameTheModesThatNeedNone) {
  auto layer = MoeLayer::create(small_spec(), reference_options(ActivationMode::kW4a4));
  ASSERT_FALSE(layer.ok());
  EXPECT_EQ(layer.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(layer.status().message(),
            "gate_up.input_scale is missing: use --moe-activation-mode w4a4_dynamic or w4a16");
}

// Section 3: input scales of w4a16 are not read, whatever they are.
TEST(MoeLayer, OtherModesIgnoreInputScales) {
  const MoeSpec spec = small_spec();
  const auto experts = random_experts(spec, 28);
  Layer layer(spec, reference_options(), {{{2}, {NAN, -1.0F}}, {{3}, {}}});
  layer.load(experts);
  Step step(spec, 2, 29);
  ASSERT_TRUE(step.run(*layer, spec).ok());
  expect_reference(spec, ActivationMode::kW4a16, experts, step);
}

TEST(MoeLayer, DifferentGateAndUpScalesAreNoticedOncePerSink) {
  std::vector<std::string> lines;
  MoeOptions options = reference_options();
  options.notices = make_notice_sink([&](std::string_view line) { lines.emplace_back(line); });
  const MoeSpec spec = small_spec();
  for (int layer_idx = 0; layer_idx < 2; ++layer_idx) {
    Layer layer(spec, options);
    layer.load(random_experts(spec, 30));
  }
  EXPECT_THAT(lines, Contains(HasSubstr("differ in 6 of 6 experts, by up to 1.5")).Times(1));
  EXPECT_THAT(lines, Contains(HasSubstr("local + reference chosen")).Times(1));
}

// 12.10: layers share one workspace, as large as the largest asks for.
TEST(MoeLayer, LayersShareAWorkspace) {
  MoeSpec narrow = small_spec();
  MoeSpec wide = small_spec();
  wide.hidden_size = 256;
  const auto narrow_experts = random_experts(narrow, 31);
  const auto wide_experts = random_experts(wide, 32);
  MoeOptions options = reference_options();
  options.workspace = make_moe_workspace();
  Layer first(narrow, options);
  first.load(narrow_experts);
  Layer second(wide, options);  // grows it under the first
  second.load(wide_experts);
  EXPECT_GT(second->workspace_bytes(), first->workspace_bytes());
  Step small(narrow, 3, 33);
  Step large(wide, 3, 33);
  ASSERT_TRUE(small.run(*first, narrow).ok());
  ASSERT_TRUE(large.run(*second, wide).ok());
  ASSERT_TRUE(small.run(*first, narrow).ok());
  expect_reference(narrow, ActivationMode::kW4a16, narrow_experts, small);
  expect_reference(wide, ActivationMode::kW4a16, wide_experts, large);
}

// 9.7: counts [0, 5, 0, 3] and a bucket taller than the capacity; rows past a count keep a guard.
TEST(MoeLayer, BucketedRowsAreUnweightedAndOthersStayUntouched) {
  MoeSpec spec = small_spec();
  spec.num_experts = 4;
  const auto experts = random_experts(spec, 34);
  MoeOptions options = reference_options();
  options.capacity_tokens = 2;
  Layer layer(spec, options);
  layer.load(experts);
  const std::vector<std::int32_t> counts = {0, 5, 0, 3};
  std::vector<float> x = random_rows(4 * 6 * 64, 35);
  for (std::size_t e = 0; e < 4; ++e) {
    const std::size_t begin = (e * 6 + static_cast<std::size_t>(counts[e])) * 64;
    std::fill(x.begin() + static_cast<std::ptrdiff_t>(begin),
              x.begin() + static_cast<std::ptrdiff_t>((e + 1) * 6 * 64), NAN);
  }
  std::vector<float> y(x.size(), -7.0F);
  const Status status =
      layer->run_bucketed({x.data(), DType::kF32, 24, 64}, counts, {y.data(), DType::kF32, 24, 64});
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t row = 0; row < 24; ++row) {
    const std::size_t e = row / 6;
    std::vector<float> want(64, -7.0F);
    if (row % 6 < static_cast<std::size_t>(counts[e])) {
      const std::int32_t idx = static_cast<std::int32_t>(e);
      const float one = 1.0F;
      want = reference_token(spec, ActivationMode::kW4a16, experts, 1.0F, 1.0F, x.data() + row * 64,
                             {&idx, 1}, {&one, 1});
    }
    EXPECT_EQ(std::vector<float>(y.begin() + static_cast<std::ptrdiff_t>(row * 64),
                                 y.begin() + static_cast<std::ptrdiff_t>(row * 64 + 64)),
              want)
        << "row " << row;
  }
}

TEST(MoeLayer, BucketedCountsMustFitTheRows) {
  MoeSpec spec = small_spec();
  spec.num_experts = 4;
  Layer layer(spec, reference_options());
  layer.load(random_experts(spec, 36));
  std::vector<float> x(8 * 64, 0.0F);
  const MatrixView view(x.data(), DType::kF32, 8, 64);
  for (const std::vector<std::int32_t>& counts :
       std::vector<std::vector<std::int32_t>>{{3, 0, 0, 0}, {-1, 0, 0, 0}, {1, 1, 1}}) {
    EXPECT_EQ(layer->run_bucketed(view, counts, view).code(), StatusCode::kInvalidArgument);
  }
}

TEST(MoeLayer, RoutesAndCountsUnroutableRows) {
  const MoeSpec spec = small_spec();
  Layer layer(spec, reference_options());
  std::vector<float> logits(2 * 6, -INFINITY);
  logits[4] = 1.0F;
  logits[2] = 1.0F;
  std::vector<std::int32_t> idx(4);
  std::vector<float> weights(4);
  ASSERT_TRUE(layer->route({logits.data(), DType::kF32, 2, 6}, {}, idx, weights).ok());
  EXPECT_EQ(idx, (std::vector<std::int32_t>{2, 4, -1, -1}));
  EXPECT_EQ(layer->counters().unroutable_rows, 1);
  EXPECT_FALSE(layer->route({logits.data(), DType::kF32, 2, 5}, {}, idx, weights).ok());
}

}  // namespace
}  // namespace halfbyte
