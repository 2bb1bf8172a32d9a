// SPDX-License-Identifier: Apache-2.0
//
// The config shapes of checkpoints.md section 4, in its own examples, and the pattern languages.
#include "checkpoint/quant_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/model_config.h"
#include "checkpoint/module_pattern.h"

namespace halfbyte {
namespace {

using testing::HasSubstr;

struct Parsed {
  std::vector<std::string> notices;
  Result<ModelConfig> config = Status(StatusCode::kInternal, "");
  explicit Parsed(std::string_view config_json, std::string_view quant_json = "{}") {
    NoticeSink sink([this](std::string_view line) { notices.emplace_back(line); });
    config = parse_model_config(config_json, "{}", quant_json, sink);
  }
  const QuantPlan& plan() const { return config.value().quant; }
};

bool matches(const char* pattern, PatternDialect dialect, const char* module) {
  auto compiled = ModulePattern::compile(pattern, dialect);
  EXPECT_TRUE(compiled.ok());
  return (*compiled)->matches(module);
}

TEST(QuantPlan, HfQuantConfigAlone) {
  const Parsed p("{}", R"({"producer":{"name":"modelopt","version":"0.33.0"},"quantization":{
    "quant_algo":"NVFP4","kv_cache_quant_algo":"FP8","group_size":16,
    "exclude_modules":["lm_head","model.layers.0.mlp.gate","model.layers.61*"]}})");
  ASSERT_TRUE(p.config.ok()) << p.config.status().to_string();
  EXPECT_EQ(p.plan().algorithm, "NVFP4");
  EXPECT_EQ(p.plan().kv_cache, "FP8");
  EXPECT_EQ(p.plan().producer, "modelopt 0.33.0");
  EXPECT_TRUE(p.plan().excludes_module("model.layers.61.self_attn.q_proj"));
  EXPECT_FALSE(p.plan().excludes_module("model.layers.6.self_attn.q_proj"));
  EXPECT_EQ(p.plan().declares_activation_quantization("model.layers.3.mlp.experts.1.up_proj"),
            true);
}

TEST(QuantPlan, NothingButTheAlgorithmAndTheObjectAtTopLevel) {
  const Parsed p(R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4",
    "kv_cache_quant_algo":null}})");
  ASSERT_TRUE(p.config.ok());
  EXPECT_EQ(p.plan().algorithm, "NVFP4");
  EXPECT_EQ(p.plan().kv_cache, "");
  EXPECT_EQ(p.plan().group_size, 16);
}

TEST(QuantPlan, QuantizationConfigOfModelOptAlsoInsideTextConfig) {
  const std::string object =
      R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"NVFP4",
    "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"group_size":16},
    "input_activations":{"num_bits":4}}},"ignore":["lm_head","model.layers.1.self_attn*"],
    "kv_cache_scheme":{"num_bits":8,"type":"float"}}})";
  for (const std::string& text : {object, R"({"text_config":)" + object + "}"}) {
    const Parsed p(text);
    ASSERT_TRUE(p.config.ok()) << p.config.status().to_string();
    EXPECT_EQ(p.plan().kv_cache, "FP8");
    EXPECT_TRUE(p.plan().excludes_module("model.layers.1.self_attn.q_proj"));
    EXPECT_TRUE(p.plan().excludes_module("language_model.model.layers.1.self_attn.q_proj"));
  }
}

TEST(QuantPlan, QuantizedLayersBeatEverythingAndCoverWhatLiesBelow) {
  const Parsed p("{}", R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{
    "model.language_model.layers.0.mlp.experts":{"quant_algo":"W4A16_NVFP4","group_size":16},
    "model.language_model.layers.3.self_attn.q_proj":{"quant_algo":"FP8"},
    "model.layers.7.mlp.experts.4.w1":{"quant_algo":"NVFP4","group_size":16}}}})");
  ASSERT_TRUE(p.config.ok());
  const QuantPlan& plan = p.plan();
  EXPECT_EQ(plan.algorithm_of("model.language_model.layers.0.mlp.experts.12.up_proj"),
            "W4A16_NVFP4");
  EXPECT_EQ(plan.algorithm_of("model.layers.3.self_attn.q_proj"), "FP8");
  EXPECT_EQ(plan.algorithm_of("model.layers.7.mlp.experts.40.w1"), "MIXED_PRECISION");
  EXPECT_EQ(plan.declares_activation_quantization("model.layers.0.mlp.experts.1.up_proj"), false);
  EXPECT_EQ(plan.declares_activation_quantization("model.layers.7.mlp.experts.4.w1"), true);
  EXPECT_EQ(plan.declares_activation_quantization("model.layers.9.mlp.experts.4.w1"), std::nullopt);
}

TEST(QuantPlan, Fp8BlocksWithNvfp4Experts) {
  const Parsed p(R"({"quantization_config":{"quant_method":"fp8","scale_fmt":"ue8m0",
    "weight_block_size":[128,128],"moe_quant_algo":"NVFP4","quant_algo":"MIXED_PRECISION",
    "group_size":16,"quantized_layers":{"layers.0.ffn.experts":{"quant_algo":"NVFP4"}},
    "ignore":["*.attn.*","head","mtp.*"]}})");
  ASSERT_TRUE(p.config.ok());
  EXPECT_EQ(p.plan().weight_block_size, (std::vector<std::int64_t>{128, 128}));
  EXPECT_TRUE(p.plan().excludes_module("layers.4.attn.wq"));
  EXPECT_FALSE(p.plan().excludes_module("layers.4.ffn.experts.2.w1"));
}

TEST(QuantPlan, CompressedTensorsUnderBothKeysAndWeightOnly) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const Parsed p(std::string("{\"") + key + R"(":{"quant_method":"compressed-tensors",
      "format":"nvfp4-pack-quantized","config_groups":{"group_0":{"targets":["Linear"],
      "weights":{"num_bits":4,"group_size":16},"input_activations":null}},
      "ignore":["lm_head","re:.*mlp\\.gate$"]}})");
    ASSERT_TRUE(p.config.ok()) << p.config.status().to_string();
    EXPECT_EQ(p.plan().declares_activation_quantization("model.layers.0.mlp.experts.0.up_proj"),
              false);
    EXPECT_TRUE(p.plan().excludes_module("model.layers.12.mlp.gate"));
    EXPECT_FALSE(p.plan().excludes_module("model.layers.12.mlp.gate_proj"));
  }
}

TEST(QuantPlan, NoQuantisationAtAll) {
  const Parsed p("{}");
  ASSERT_TRUE(p.config.ok());
  EXPECT_EQ(p.plan().declares_activation_quantization("layers.0.mlp.experts.0.up_proj"),
            std::nullopt);
}

TEST(QuantPlan, UnknownNamesAreErrorsAtParse) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quantization_config":{"quant_algo":"NVFP9"}})", "'NVFP9' is not known"},
      {R"({"quantization_config":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"a":{"quant_algo":"NVFP9"}}}})",
       "NVFP9"},
      {R"({"quantization_config":{"quant_algo":"W4A8_NVFP4_FP8"}})", "blocks of 32"},
      {R"({"quantization_config":{"quant_method":"quark"}})", "Quark"},
      {R"({"quantization_config":{"quant_method":"gptq"}})", "GPTQ"},
      {R"({"quantization_config":{"quant_method":"awq"}})", "AWQ-INT4"},
      {R"({"quantization_config":{"quant_method":"bitsandbytes"}})", "NF4"},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized"}})",
       "pack-quantized"},
      {R"({"quantization_config":{"quant_algo":"NVFP4","kv_cache_scheme":"INT8"}})", "INT8"}};
  for (const auto& [text, message] : cases) {
    const Parsed p(text);
    ASSERT_FALSE(p.config.ok()) << text;
    EXPECT_EQ(p.config.status().code(), StatusCode::kUnsupported) << text;
    EXPECT_THAT(std::string(p.config.status().message()), HasSubstr(message));
  }
}

TEST(QuantPlan, ConfigJsonWinsOverTheOtherFileWithANotice) {
  const Parsed p(R"({"quantization_config":{"quant_algo":"NVFP4","kv_cache_scheme":"NVFP4"}})",
                 R"({"quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8"}})");
  ASSERT_TRUE(p.config.ok());
  EXPECT_EQ(p.plan().kv_cache, "NVFP4");
  EXPECT_THAT(p.notices, testing::Contains(HasSubstr("KV-cache format")));
}

TEST(ModulePattern, ModelOptGlobsCrossDotsAndCoverWholePaths) {
  const auto glob = [](const char* pattern, const char* module) {
    return matches(pattern, PatternDialect::kModelOpt, module);
  };
  EXPECT_TRUE(glob("model.layers.0*", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(glob("*.mlp.shared_expert.*", "model.layers.4.mlp.shared_expert.up_proj"));
  EXPECT_TRUE(glob("vision_tower", "vision_tower.blocks.0"));
  EXPECT_FALSE(glob("vision_tower", "vision_tower2.blocks.0"));
  EXPECT_TRUE(glob("model.layers.1.*", "model.layers.1.mlp"));
  EXPECT_FALSE(glob("model.layers.1.*", "model.layers.12.mlp"));
  EXPECT_TRUE(glob("model.layers.1*", "model.layers.12.mlp"));  // as written, though not as meant
  EXPECT_TRUE(glob("*layers.[12].mlp?", "model.layers.2.mlps"));
  EXPECT_FALSE(glob("*layers.[!12].mlp", "model.layers.2.mlp"));
  // Lists and tensors use different prefixes (5.1).
  EXPECT_TRUE(glob("language_model.layers.3*", "language_model.model.layers.3.mlp.gate"));
  EXPECT_TRUE(glob("lm_head", "language_model.lm_head"));
}

TEST(ModulePattern, EveryWayToNameAnExpertsProjectionAgrees) {
  const char* module = "model.layers.2.mlp.experts.3.down_proj";
  for (const char* pattern :
       {"model.layers.2.mlp.experts.3.down_proj", "model.layers.2.mlp.experts.3",
        "model.layers.2.mlp.experts", "model.layers.2", "model.layers.2.*"}) {
    EXPECT_TRUE(matches(pattern, PatternDialect::kModelOpt, module)) << pattern;
  }
}

TEST(ModulePattern, RegularExpressionsAreAnchoredAtTheStartOnly) {
  const auto ct = [](const char* pattern, const char* module) {
    return matches(pattern, PatternDialect::kCompressedTensors, module);
  };
  EXPECT_TRUE(ct("re:.*experts\\.1", "model.layers.0.mlp.experts.12"));
  EXPECT_FALSE(ct("re:.*experts\\.1$", "model.layers.0.mlp.experts.12"));
  EXPECT_FALSE(ct("re:mlp", "model.layers.0.mlp"));
  EXPECT_TRUE(ct("re:model\\.layers\\.0.*", "language_model.model.layers.0.mlp"));
  EXPECT_TRUE(ct("Linear", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(ct("model.layers.0.mlp.gate", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(ct("model.layers.0.mlp", "model.layers.0.mlp.gate"));  // exact, not a container
}

TEST(ModulePattern, APatternThatDoesNotCompileIsAnError) {
  const auto bad = ModulePattern::compile("re:(", PatternDialect::kCompressedTensors);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kCorruptData);
}

// A few kilobytes of "a" against this take a naive matcher 2^n steps; the match limit ends it.
TEST(ModulePattern, AHostilePatternEndsSoon) {
  const std::string module(4000, 'a');
  EXPECT_FALSE(matches("re:(a*)*b", PatternDialect::kCompressedTensors, module.c_str()));
}

}  // namespace
}  // namespace halfbyte
