// SPDX-License-Identifier: Apache-2.0
//
// Expected logits: transformers 5.24, eager attention, fp32, written by make_tiny_models.py, whose
// table says which options each model covers. Bound: docs/numerics.md, "Models".
#include <gtest/gtest.h>

#include "golden/model_support.h"

namespace halfbyte {
namespace {

struct Case {
  std::string model;
  std::string backend;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* model : {"qwen_yarn_tied", "qwen_old_rope", "qwen_bias_linear",
                            "deepseek_mscale", "deepseek_groups"}) {
    for (const char* backend : {"reference", "cpu"})
      cases.push_back({model, backend});
  }
  return cases;
}

class TinyModel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string path = golden_path("tiny/" + GetParam().model);
    golden_ = read_golden(path + "/golden");
    model_ = load_one_rank(path, float32_options(GetParam().backend));
    ASSERT_NE(model_, nullptr);
  }
  std::map<std::string, GoldenTensor> golden_;
  std::unique_ptr<Model> model_;
};

TEST_P(TinyModel, MatchesTransformersInOnePiece) {
  const std::vector<float> logits = score(*model_, golden_.at("tokens").i32);
  const std::vector<float>& want = golden_.at("logits").f32;
  const std::int64_t vocab = model_->config().vocab_size;
  EXPECT_LE(relative_max(logits, want), 2e-5);
  EXPECT_EQ(count_argmax_differences(logits, want, vocab, 1e-4F), 0);
}

// checkpoints.md 15: prefill in one piece, in chunks, and token by token. Not within a bound: the
// same bits.
TEST_P(TinyModel, HasTheSameBitsHoweverThePromptIsCut) {
  const std::vector<std::int32_t>& tokens = golden_.at("tokens").i32;
  const std::vector<float> whole = score(*model_, tokens);
  EXPECT_EQ(score(*model_, tokens, 7), whole);
  EXPECT_EQ(score(*model_, tokens, 1), whole);
}

std::string case_name(const testing::TestParamInfo<Case>& param) {
  return param.param.model + "_" + param.param.backend;
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel, testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace halfbyte
