// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace halfbyte {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json qwen() {
  return json::parse(R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe",
    "num_hidden_layers":4,"hidden_size":64,"intermediate_size":96,"moe_intermediate_size":32,
    "num_experts":8,"num_experts_per_tok":2,"norm_topk_prob":true,"vocab_size":100,
    "max_position_embeddings":128,"num_attention_heads":4,"num_key_value_heads":2,
    "hidden_act":"silu","rms_norm_eps":1e-6,"rope_theta":1000000.0,"eos_token_id":[1,2]})");
}

json deepseek() {
  json config = qwen();
  config.erase("norm_topk_prob");
  config.erase("num_experts");
  config.update(
      json::parse(R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3",
    "n_routed_experts":8,"n_shared_experts":1,"n_group":4,"topk_group":2,"routed_scaling_factor":2.5,
    "first_k_dense_replace":1,"kv_lora_rank":16,"q_lora_rank":null,"qk_nope_head_dim":8,
    "qk_rope_head_dim":4,"v_head_dim":8,"head_dim":4,"num_key_value_heads":4,
    "scoring_func":"sigmoid","topk_method":"noaux_tc","num_nextn_predict_layers":1})"));
  return config;
}

Result<ModelConfig> read(const json& config, std::string_view generation = "{}") {
  NoticeSink sink;
  return parse_model_config(config.dump(), generation, "{}", sink);
}

std::string error_of(const json& config) {
  const auto read_config = read(config);
  return read_config.ok() ? "" : read_config.status().to_string();
}

TEST(ModelConfig, ReadsQwen3Moe) {
  const auto config = read(qwen());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->head_dim, 16);  // hidden / heads when absent
  EXPECT_EQ(config->router.method, RoutingMethod::kSoftmaxRenorm);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->eos_token_ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(config->activation.function, ActivationFunction::kSwiglu);
}

TEST(ModelConfig, OverridesReplaceWholeMembersAndAreTold) {
  std::vector<std::string> lines;
  NoticeSink sink([&lines](std::string_view line) { lines.emplace_back(line); });
  const auto config =
      parse_model_config(qwen().dump(), "{}", "{}", sink,
                         R"({"max_position_embeddings": 64, "eos_token_id": null, "extra": [1]})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->max_position_embeddings, 64);
  EXPECT_TRUE(config->eos_token_ids.empty());
  const std::string tail = " (--json-model-override-args)";
  EXPECT_THAT(lines, testing::UnorderedElementsAre(
                         "config.json: max_position_embeddings is 64 instead of 128" + tail,
                         "config.json: eos_token_id is null instead of [1,2]" + tail,
                         "config.json: extra is [1] instead of absent" + tail));
}

TEST(ModelConfig, RefusesOverridesThatAreNoObject) {
  NoticeSink sink;
  for (const char* wrong : {"[1]", "{", "3"}) {
    const auto config = parse_model_config(qwen().dump(), "{}", "{}", sink, wrong);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()),
                testing::StartsWith("--json-model-override-args: "));
  }
}

TEST(ModelConfig, NormTopkProbIsFalseForQwenAndTrueForDeepseekWhenAbsent) {
  json config = qwen();
  config.erase("norm_topk_prob");
  EXPECT_EQ(read(config)->router.method, RoutingMethod::kSoftmax);
  EXPECT_TRUE(read(deepseek())->router.renormalize);
}

TEST(ModelConfig, ReadsDeepseekV3) {
  const auto config = read(deepseek());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->num_experts, 8);
  EXPECT_EQ(config->q_lora_rank, 0);
  EXPECT_EQ(config->head_dim, 12);  // nope + rope: the saved head_dim means nothing
  EXPECT_EQ(config->router.method, RoutingMethod::kGroupedTop2);
  EXPECT_EQ(config->router.num_groups, 4);
  EXPECT_FLOAT_EQ(config->router.routed_scaling_factor, 2.5F);
  EXPECT_EQ(config->num_draft_layers, 1);
  EXPECT_FALSE(is_moe_layer(*config, 0));
  EXPECT_TRUE(is_moe_layer(*config, 1));
}

TEST(ModelConfig, NoGroupsMeansPlainTopK) {
  for (const json& value : {json(nullptr), json(0), json(1)}) {
    json config = deepseek();
    config["n_group"] = value;
    config["topk_group"] = value;
    const auto read_config = read(config);
    ASSERT_TRUE(read_config.ok()) << read_config.status().to_string();
    EXPECT_EQ(read_config->router.method, RoutingMethod::kSigmoidBias);
    EXPECT_EQ(read_config->router.num_groups, 1);
  }
}

TEST(ModelConfig, EverySpellingOfASizeIsRead) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    json config = qwen();
    config.erase("num_experts");
    config[key] = 8;
    EXPECT_EQ(read(config)->num_experts, 8) << key;
  }
  for (const char* key : {"rms_norm_eps", "layer_norm_epsilon", "norm_eps"}) {
    json config = qwen();
    config.erase("rms_norm_eps");
    config[key] = 1e-5;
    EXPECT_EQ(read(config)->rms_norm_eps, 1e-5) << key;
  }
  for (const char* key :
       {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"}) {
    json config = qwen();
    config[key] = 1;
    EXPECT_EQ(read(config)->num_draft_layers, 1) << key;
  }
}

TEST(ModelConfig, AMissingSizeIsAnErrorThatNamesIt) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size",
                          "num_attention_heads", "moe_intermediate_size", "num_experts_per_tok",
                          "max_position_embeddings", "rms_norm_eps", "hidden_act"}) {
    json config = qwen();
    config.erase(key);
    EXPECT_THAT(error_of(config), HasSubstr(std::string("no '") + key + "'"));
  }
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    json config = deepseek();
    config.erase(key);
    EXPECT_THAT(error_of(config), HasSubstr(key));
  }
}

TEST(ModelConfig, WrongTypesAndRangesAreErrors) {
  const std::pair<const char*, json> cases[] = {
      {"hidden_size", "64"},          {"hidden_size", -1},        {"hidden_size", 0},
      {"hidden_size", 1.5},           {"rms_norm_eps", "x"},      {"norm_topk_prob", 1},
      {"mlp_only_layers", 3},         {"num_key_value_heads", 3}, {"eos_token_id", "x"},
      {"num_hidden_layers", 1000000}, {"eos_token_id", -1},       {"num_experts_per_tok", 9}};
  for (const auto& [key, value] : cases) {
    json config = qwen();
    config[key] = value;
    EXPECT_THAT(error_of(config), HasSubstr("corrupt_data")) << key << value;
  }
}

TEST(ModelConfig, FeaturesThatDoNotRunAreRefusedByName) {
  const std::pair<const char*, json> cases[] = {{"hidden_act", "gelu"},
                                                {"use_sliding_window", true},
                                                {"rope_scaling", {{"type", "longrope"}}}};
  for (const auto& [key, value] : cases) {
    json config = qwen();
    config[key] = value;
    EXPECT_THAT(error_of(config), HasSubstr("unsupported")) << key;
  }
  json config = deepseek();
  config["topk_method"] = "greedy";
  EXPECT_THAT(error_of(config), HasSubstr("topk_method 'greedy'"));
  config = deepseek();
  config["scoring_func"] = "softmax";
  EXPECT_THAT(error_of(config), HasSubstr("scoring_func 'softmax'"));
  config = deepseek();
  config["n_group"] = 3;
  EXPECT_THAT(error_of(config), HasSubstr("n_group 3"));
}

TEST(ModelConfig, BothSpellingsOfTheRotarySettingsAgree) {
  const json settings = json::parse(R"({"factor":40,"original_max_position_embeddings":4096,
    "beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":0.5})");
  json old_spelling = deepseek();
  old_spelling["rope_theta"] = 50000;
  old_spelling["rope_scaling"] = settings;
  old_spelling["rope_scaling"]["type"] = "yarn";
  json new_spelling = deepseek();
  new_spelling.erase("rope_theta");
  new_spelling["rope_parameters"] = settings;
  new_spelling["rope_parameters"]["rope_type"] = "yarn";
  new_spelling["rope_parameters"]["rope_theta"] = 50000;
  for (const json& config : {old_spelling, new_spelling}) {
    const auto read_config = read(config);
    ASSERT_TRUE(read_config.ok()) << read_config.status().to_string();
    const RopeConfig& rope = read_config->rope;
    EXPECT_EQ(rope.type, RopeType::kYarn);
    EXPECT_EQ(rope.theta, 50000.0);
    EXPECT_EQ(rope.factor, 40.0);
    EXPECT_EQ(rope.original_max_position_embeddings, 4096);
    EXPECT_EQ(rope.mscale_all_dim, 0.5);
  }
}

TEST(ModelConfig, YarnFillsWhatIsMissing) {
  json config = qwen();
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", nullptr},
                            {"beta_fast", 0},
                            {"original_max_position_embeddings", 32}};
  const auto read_config = read(config);
  ASSERT_TRUE(read_config.ok());
  EXPECT_EQ(read_config->rope.factor, 4.0);  // 128 / 32
  EXPECT_EQ(read_config->rope.beta_fast, 32.0);
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(read(config)->rope.original_max_position_embeddings, 128);
}

TEST(ModelConfig, GenerationConfigDecidesTheEndOfText) {
  EXPECT_EQ(read(qwen(), R"({"eos_token_id":7})")->eos_token_ids, std::vector<std::int32_t>{7});
  EXPECT_EQ(read(qwen(), R"({"eos_token_id":null})")->eos_token_ids,
            (std::vector<std::int32_t>{1, 2}));
}

TEST(ModelConfig, BareInfinityAndNanAreReadTolerantly) {
  NoticeSink sink;
  std::string text = qwen().dump();
  text.insert(1, R"("time_step_limit":[0.0,Infinity,-Infinity],"x":NaN,"s":"NaN, \"Infinity",)");
  EXPECT_TRUE(parse_model_config(text, "{}", "{}", sink).ok());
}

TEST(ModelConfig, ActivationsOfOtherModels) {
  json config = qwen();
  config["hidden_act"] = "swigluoai";
  auto read_config = read(config);
  ASSERT_TRUE(read_config.ok());
  EXPECT_EQ(read_config->activation.function, ActivationFunction::kSwigluClamped);
  EXPECT_FLOAT_EQ(read_config->activation.alpha, 1.702F);
  EXPECT_FLOAT_EQ(read_config->activation.limit, 7.0F);
  config["hidden_act"] = "silu";
  config["swiglu_limit"] = 10.0;
  read_config = read(config);
  EXPECT_FLOAT_EQ(read_config->activation.limit, 10.0F);
  EXPECT_FLOAT_EQ(read_config->activation.beta, 0.0F);
  config["swiglu_limit"] = 0.0;
  EXPECT_THAT(error_of(config), HasSubstr("swiglu_limit"));
}

// Others than the two that run are opened for `inspect`, whatever their configs lack.
TEST(ModelConfig, OtherArchitecturesAreReadAsFarAsTheyGo) {
  const auto config = read(json::parse(R"({"architectures":["NemotronHForCausalLM"],
    "model_type":"nemotron_h","num_hidden_layers":52,"mlp_hidden_act":"relu2",
    "n_routed_experts":128,"rope_scaling":{"type":"unknown"}})"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->num_hidden_layers, 52);
  EXPECT_FALSE(config->activation.gated());
}

TEST(ModelConfig, MoeLayersFollowTheStepAndTheList) {
  json config = qwen();
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const auto read_config = read(config);
  EXPECT_FALSE(is_moe_layer(*read_config, 0));
  EXPECT_TRUE(is_moe_layer(*read_config, 1));
  EXPECT_FALSE(is_moe_layer(*read_config, 3));
}

// is_moe_layer divides by both; an architecture that only `inspect` opens came through with the
// zero.
TEST(ModelConfig, AStepOfZeroIsRefusedOrSetRight) {
  for (const char* key : {"decoder_sparse_step", "moe_layer_freq"}) {
    json config = qwen();
    config[key] = 0;
    EXPECT_FALSE(read(config).ok()) << key;
    config["architectures"] = {"NemotronHForCausalLM"};
    const auto looked_at = read(config);
    ASSERT_TRUE(looked_at.ok()) << looked_at.status().to_string();
    EXPECT_TRUE(is_moe_layer(*looked_at, 3)) << key;
  }
}

}  // namespace
}  // namespace halfbyte
