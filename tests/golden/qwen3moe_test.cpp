// SPDX-License-Identifier: Apache-2.0
//
// The shipped model against recordings of transformers 5.24 (eager attention, fp32, weights
// dequantised exactly; the w4a4 modes by a separate implementation of the quantiser). Every eighth
// position of one worked answer, three layers, greedy answers. Bounds: docs/numerics.md.
#include <gtest/gtest.h>

#include "golden/layer_support.h"

namespace halfbyte {
namespace {

const std::map<std::string, GoldenTensor>& golden() {
  static const auto kGolden = read_golden(golden_path("qwen3moe"));
  return kGolden;
}

struct Case {
  std::string backend;
  ActivationMode mode;
};

std::string mode_name(ActivationMode mode) {
  return std::string(activation_mode_name(mode));
}

std::string case_name(const testing::TestParamInfo<Case>& param) {
  return param.param.backend + "_" + mode_name(param.param.mode);
}

class ShippedModel : public testing::TestWithParam<Case> {
 protected:
  ModelOptions options() const {
    ModelOptions options = float32_options(GetParam().backend);
    options.moe.activation_mode = GetParam().mode;
    return options;
  }
  std::vector<float> score_rows(const ModelOptions& options) const {
    const auto model = load_one_rank(shipped_model_path(), options);
    if (!model) return {};
    return select_rows(score(*model, golden().at("tokens").i32), golden().at("rows").i32, kVocab);
  }
  const std::vector<float>& want() const {
    return golden().at("logits." + mode_name(GetParam().mode)).f32;
  }
  static constexpr std::int64_t kVocab = 2048;
  static constexpr int kAnswers = 3;  // of eight: a second of work
};

TEST_P(ShippedModel, HasTheRecordedLogitsInFloat32) {
  const std::vector<float> got = score_rows(options());
  if (GetParam().mode == ActivationMode::kW4a16) {
    EXPECT_LE(relative_max(got, want()), 2e-5);
  }
  EXPECT_LE(mean_kl(got, want(), kVocab), 5e-6);
}

TEST_P(ShippedModel, AnswersAsRecorded) {
  if (GetParam().backend == "reference") GTEST_SKIP() << "slow; its logits are compared above";
  const auto model = load_one_rank(shipped_model_path(), options());
  ASSERT_NE(model, nullptr);
  for (int i = 0; i < kAnswers; ++i) {
    const std::string prefix = "greedy." + std::to_string(i) + ".";
    EXPECT_EQ(generate(*model, golden().at(prefix + "prompt").i32, {2}, 128),
              golden().at(prefix + mode_name(GetParam().mode)).i32);
  }
}

TEST_P(ShippedModel, RoutesAndRunsItsExpertsAsRecorded) {
  if (GetParam().mode == ActivationMode::kW4a4Dynamic) GTEST_SKIP() << "not recorded";
  const auto weights =
      CheckpointWeights::open(shipped_model_path(), false, std::make_shared<NoticeSink>());
  ASSERT_TRUE(weights.ok());
  const double y_bound = GetParam().mode == ActivationMode::kW4a16 ? 2e-6 : 3e-3;
  for (const std::int64_t layer : {0, 2, 4}) {
    const std::string prefix = mode_name(GetParam().mode) + ".layer" + std::to_string(layer) + ".";
    const LayerErrors errors = compare_layer(**weights, layer, options(), golden(), prefix);
    EXPECT_EQ(errors.rows_with_other_experts, 0);
    EXPECT_LE(errors.topk_weights, 2e-5);
    EXPECT_LE(errors.y, y_bound);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         ShippedModel,
                         testing::Values(Case{"reference", ActivationMode::kW4a16},
                                         Case{"reference", ActivationMode::kW4a4},
                                         Case{"cpu", ActivationMode::kW4a16},
                                         Case{"cpu", ActivationMode::kW4a4},
                                         Case{"cpu", ActivationMode::kW4a4Dynamic}),
                         case_name);

// The defaults of the cpu backend: a bf16 cache, split15 activations allowed.
TEST(ShippedModelDefaults, AreCloseToTheRecordedLogits) {
  ModelOptions options = float32_options("cpu");
  options.dtype = ComputeDtype::kAuto;
  options.kv_cache_dtype = KvCacheDtype::kAuto;
  options.moe.exact_float32 = false;
  const auto model = load_one_rank(shipped_model_path(), options);
  ASSERT_NE(model, nullptr);
  const std::vector<float> got =
      select_rows(score(*model, golden().at("tokens").i32), golden().at("rows").i32, 2048);
  EXPECT_LE(mean_kl(got, golden().at("logits.w4a16").f32, 2048), 2e-6);
  options.dtype = ComputeDtype::kBfloat16;
  const auto bf16_model = load_one_rank(shipped_model_path(), options);
  ASSERT_NE(bf16_model, nullptr);
  const std::vector<float> bf16 =
      select_rows(score(*bf16_model, golden().at("tokens").i32), golden().at("rows").i32, 2048);
  EXPECT_LE(mean_kl(bf16, golden().at("logits.w4a16").f32, 2048), 5e-6);
}

}  // namespace
}  // namespace halfbyte
