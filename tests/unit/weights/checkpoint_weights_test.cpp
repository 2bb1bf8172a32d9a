// SPDX-License-Identifier: Apache-2.0
//
// Loading tiny checkpoints that the test writes: equal dialects give equal bytes, every defect its
// message (checkpoints.md 2 to 8).
#include "weights/checkpoint_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "opened_checkpoint.h"
#include "weights/findings.h"

namespace halfbyte {
namespace {

using test::bytes_of;
using test::expect_same_experts;
using test::Opened;
using test::tiny_checkpoint;
using test::TinyCheckpoint;
using test::TinyDialect;
using testing::HasSubstr;

const std::string kExpert = "model.layers.1.mlp.experts.2.";

TEST(CheckpointWeights, BothDialectsGiveTheSameBytes) {
  Opened modelopt(tiny_checkpoint(TinyDialect::kModelOpt));
  Opened compressed(tiny_checkpoint(TinyDialect::kCompressedTensors));
  ASSERT_TRUE(modelopt.weights.ok()) << modelopt.error();
  ASSERT_TRUE(compressed.weights.ok()) << compressed.error();
  expect_same_experts(*modelopt, *compressed);
}

TEST(CheckpointWeights, PrefixesAndAliasesDoNotMatter) {
  const TinyCheckpoint plain = tiny_checkpoint();
  TinyCheckpoint renamed = plain;
  renamed.tensors.clear();
  for (auto [name, tensor] : plain.tensors) {
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{"model.", "language_model.model."},
          {".mlp.", ".block_sparse_moe."},
          {".gate_proj.", ".w1."},
          {".up_proj.", ".w3."},
          {".down_proj.", ".w2."}}) {
      if (const auto at = tensor.name.find(from); at != std::string::npos) {
        tensor.name.replace(at, from.size(), to);
      }
    }
    put(renamed.tensors, tensor);
  }
  Opened a(plain), b(renamed);
  ASSERT_TRUE(b.weights.ok()) << b.error();
  expect_same_experts(*a, *b);
  EXPECT_TRUE((*b).linear("layers.1.mlp.gate", 4, 32).ok());
  EXPECT_TRUE((*b).tensor_f32("norm.weight", 32).ok());
}

// checkpoints.md 2.1: NVFP4_AWQ's scale per column belongs to dense linears; experts have no form
// for it.
TEST(CheckpointWeights, DenseLinearsTakeAPreQuantScaleAndExpertsRefuseIt) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  std::mt19937 rng(3);
  const std::string q = "model.layers.0.self_attn.q_proj";
  checkpoint.tensors.erase(q + ".weight");
  put_nvfp4(checkpoint.tensors, q, test::random_nvfp4(rng, 32, 32), TinyDialect::kModelOpt);
  std::vector<float> scale(32, 0.5F);
  scale[7] = 2.0F;
  put(checkpoint.tensors, test::bf16_tensor(q + ".pre_quant_scale", {32}, scale));
  Opened opened(checkpoint);
  const auto linear = (*opened).linear("layers.0.self_attn.q_proj", 32, 32);
  ASSERT_TRUE(linear.ok()) << linear.status().to_string();
  EXPECT_EQ(linear->pre_quant_scale, scale);

  const std::string k = "model.layers.0.self_attn.k_proj";  // bf16: what the scale says holds too
  put(checkpoint.tensors, test::bf16_tensor(k + ".pre_quant_scale", {32}, scale));
  Opened dense(checkpoint);
  EXPECT_EQ((*dense).linear("layers.0.self_attn.k_proj", 32, 32)->pre_quant_scale, scale);

  scale[7] = 0.0F;
  put(checkpoint.tensors, test::bf16_tensor(q + ".pre_quant_scale", {32}, scale));
  Opened zero(checkpoint);
  EXPECT_THAT((*zero).linear("layers.0.self_attn.q_proj", 32, 32).status().to_string(),
              HasSubstr("q_proj.pre_quant_scale: value 0 at 7, want finite and > 0"));

  scale[7] = 2.0F;
  put(checkpoint.tensors, test::bf16_tensor(kExpert + "up_proj.pre_quant_scale", {32}, scale));
  Opened expert(checkpoint);
  ASSERT_TRUE(expert.weights.ok()) << expert.error();
  EXPECT_THAT((*expert).expert(1, 2).status().to_string(),
              HasSubstr("unsupported: layer 1: expert 2: up_proj.pre_quant_scale"));
}

TEST(CheckpointWeights, ExpertsAreViewsIntoTheFile) {
  Opened opened(tiny_checkpoint());
  const auto a = (*opened).expert(0, 0);
  const auto b = (*opened).expert(0, 0);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->up.matrix.codes.data(), b->up.matrix.codes.data());
  EXPECT_EQ(a->up.owned_codes, nullptr);
  EXPECT_EQ(a->up.owned_block_scale, nullptr);
}

/// Replaces one scalar by `value`.
TinyCheckpoint with_scalar(const std::string& name,
                           float value,
                           TinyDialect dialect = TinyDialect::kModelOpt) {
  TinyCheckpoint checkpoint = tiny_checkpoint(dialect);
  const auto shape = checkpoint.tensors.at(name).shape;
  put(checkpoint.tensors, test::f32_tensor(name, shape, {value}));
  return checkpoint;
}

TEST(CheckpointWeights, ABadGlobalScaleIsRefusedAndNamed) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {std::nanf(""), inf, -inf, 0.0F, -0.0F, -1.0F}) {
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      Opened opened(with_scalar(kExpert + projection + ".weight_scale_2", value));
      EXPECT_THAT(opened.error(), HasSubstr(std::string("corrupt_data: layer 1: expert 2: ") +
                                            projection + ".weight_scale_2: value"))
          << value;
      Opened other(with_scalar(kExpert + projection + ".weight_global_scale", value,
                               TinyDialect::kCompressedTensors));
      EXPECT_THAT(other.error(), HasSubstr("layer 1: expert 2")) << value;
    }
  }
}

TEST(CheckpointWeights, AnAbsentGlobalScaleIsRefused) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  for (const char* expert : {"0", "2", "3"}) {
    checkpoint.tensors.erase(std::string("model.layers.0.mlp.experts.") + expert +
                             ".up_proj.weight_scale_2");
  }
  EXPECT_EQ(Opened(checkpoint).error(),
            "corrupt_data: layer 0: experts 0, 2-3: up_proj.weight_scale_2: absent; without it the "
            "weights cannot be decoded");
}

TEST(CheckpointWeights, InputScalesMatterToW4a4Only) {
  for (const float value : {std::nanf(""), 0.0F, -1.0F, 2e12F}) {
    Opened opened(with_scalar(kExpert + "down_proj.input_scale", value));
    ASSERT_TRUE(opened.weights.ok()) << opened.error();
    EXPECT_TRUE((*opened).expert_layer(1, ActivationMode::kW4a16).ok());
    EXPECT_TRUE((*opened).expert_layer(1, ActivationMode::kW4a4Dynamic).ok());
    const auto refused = (*opened).expert_layer(1, ActivationMode::kW4a4);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("layer 1: expert 2: down_proj.input_scale: value"));
  }
}

TEST(CheckpointWeights, AbsentInputScalesNameTheModesThatNeedNone) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.tensors.erase(kExpert + "gate_proj.input_scale");
  Opened opened(checkpoint);
  const auto refused = (*opened).expert_layer(1, ActivationMode::kW4a4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().to_string(),
            "not_found: layer 1: expert 2: gate_proj.input_scale: absent; use "
            "--moe-activation-mode w4a4_dynamic or w4a16");
}

/// Sets one block scale byte of expert 2's up_proj, and the codes of its block.
TinyCheckpoint with_block_scale(std::uint8_t byte, std::uint8_t codes) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  auto& scale = checkpoint.tensors.at(kExpert + "up_proj.weight_scale").bytes;
  auto& weight = checkpoint.tensors.at(kExpert + "up_proj.weight").bytes;
  scale[2 * 5 + 1] = byte;  // row 5, group 1 of 2
  std::fill_n(weight.begin() + (2 * 5 + 1) * 8, 8, codes);
  return checkpoint;
}

TEST(CheckpointWeights, ABlockScaleThatIsNaNOrNegativeIsNamedByRowAndGroup) {
  for (const int byte : {0x7F, 0xFF, 0x80, 0x81, 0xFE}) {
    Opened opened(with_block_scale(static_cast<std::uint8_t>(byte), 0x11));
    ASSERT_TRUE(opened.weights.ok()) << opened.error();
    const auto expert = (*opened).expert(1, 2);
    ASSERT_FALSE(expert.ok()) << byte;
    EXPECT_EQ(expert.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(expert.status().message()),
                HasSubstr("layer 1: expert 2: up_proj.weight_scale: row 5, group 1: byte 0x"));
    EXPECT_FALSE((*opened).check_all_bytes().ok());
  }
}

TEST(CheckpointWeights, ANaNScaleOverAnAllZeroBlockBecomesZero) {
  for (const int codes : {0x00, 0x88, 0x08}) {
    Opened opened(with_block_scale(0x7F, static_cast<std::uint8_t>(codes)));
    const auto expert = (*opened).expert(1, 2);
    ASSERT_TRUE(expert.ok()) << expert.status().to_string();
    EXPECT_EQ(expert->up.matrix.block_scale[11], 0);
    EXPECT_NE(expert->up.matrix.block_scale[10], 0);
    EXPECT_TRUE((*opened).check_all_bytes().ok());
  }
}

TEST(CheckpointWeights, AZeroBlockScaleIsLegal) {
  Opened opened(with_block_scale(0x00, 0x11));
  EXPECT_TRUE((*opened).expert(1, 2).ok());
}

/// What opening says when `name` is replaced (or erased when it has no bytes).
std::string error_with(const std::string& name, test::TestTensor tensor) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.tensors.erase(name);
  if (!tensor.bytes.empty()) put(checkpoint.tensors, std::move(tensor));
  return Opened(checkpoint).error();
}

TEST(CheckpointWeights, WrongShapesAndClassesAreRefused) {
  const std::string scale = kExpert + "down_proj.weight_scale";  // [32, 1]
  const std::string weight = kExpert + "up_proj.weight";         // U8 [16, 16]
  const std::string q = "model.layers.0.self_attn.q_proj.";
  EXPECT_EQ(error_with(scale, bytes_of(scale, DType::kF8E4m3, {16, 1})),
            "corrupt_data: layer 1: expert 2: down_proj.weight_scale: shape [16, 1], want [32, 1] "
            "(model.safetensors)");
  EXPECT_THAT(error_with(scale, bytes_of(scale, DType::kF8E4m3, {128, 4})), HasSubstr("swizzled"));
  EXPECT_THAT(error_with(scale, {}), HasSubstr("U8 payload without weight_scale; found"));
  EXPECT_THAT(error_with(scale, bytes_of(scale, DType::kF32, {32, 1})), HasSubstr("want F8_E4M3"));
  EXPECT_THAT(error_with(weight, {}),
              HasSubstr("not_found: layer 1: expert 2: up_proj.weight: absent"));
  EXPECT_THAT(error_with(weight, bytes_of(weight, DType::kBf16, {16, 32})),
              HasSubstr("with a scale"));
  EXPECT_THAT(error_with(weight, bytes_of(weight, DType::kI32, {16, 4})),
              HasSubstr("I32 is no weight"));
  EXPECT_THAT(error_with(q + "weight", bytes_of(q + "weight", DType::kF8E4m3, {32, 32})),
              HasSubstr("layers.0.self_attn.q_proj: q_proj.weight: F8_E4M3 without a scale"));
  const std::string up_scale = kExpert + "up_proj.weight_scale";
  EXPECT_THAT(error_with(up_scale, bytes_of(up_scale, DType::kF8E4m3, {16, 1})),
              HasSubstr("unsupported: layer 1: expert 2: up_proj.weight_scale: blocks of 32"));
}

TEST(CheckpointWeights, OneExpertStoredOtherwiseIsRefusedByItsNumber) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string path = kExpert + projection;
    const auto shape = checkpoint.tensors.at(path + ".weight").shape;
    for (const char* role : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"}) {
      checkpoint.tensors.erase(path + role);
    }
    put(checkpoint.tensors, bytes_of(path + ".weight", DType::kBf16, {shape[0], shape[1] * 2}));
  }
  EXPECT_THAT(Opened(checkpoint).error(),
              HasSubstr("unsupported: layer 1: expert 2: down_proj: is dense, other experts of the "
                        "layer are NVFP4"));
}

TEST(CheckpointWeights, MoreExpertsThanTheConfigAreRefused) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["num_experts"] = 3;
  EXPECT_THAT(Opened(checkpoint).error(), HasSubstr("expert 3: in the files"));
  checkpoint.config["num_experts"] = 5;
  EXPECT_THAT(Opened(checkpoint).error(), HasSubstr("expert 4: down_proj.weight: absent"));
}

TEST(CheckpointWeights, AQuantisedRouterIsRefused) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string gate = "model.layers.0.mlp.gate";
  put(checkpoint.tensors, bytes_of(gate + ".weight", DType::kF8E4m3, {4, 32}));
  put(checkpoint.tensors, test::f32_tensor(gate + ".weight_scale", {}, {1.0F}));
  EXPECT_THAT(Opened(checkpoint).error(), HasSubstr("the router is FP8 per tensor"));
}

TEST(CheckpointWeights, EveryTensorMustBeUsedOrKnown) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  put(checkpoint.tensors, test::f32_tensor("model.layers.0.mlp.surprise", {1}, {1.0F}));
  put(checkpoint.tensors, test::f32_tensor("visual.blocks.0.weight", {1}, {1.0F}));
  put(checkpoint.tensors, test::f32_tensor("model.layers.2.enorm.weight", {1}, {1.0F}));
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  ASSERT_TRUE((*opened).expert_layer(0, ActivationMode::kW4a16).ok());
  const std::string text = (*opened).check_all_consumed().to_string();
  EXPECT_THAT(text, HasSubstr("model.layers.0.mlp.surprise"));
  EXPECT_THAT(text, testing::Not(HasSubstr("visual")));
  EXPECT_THAT((*opened).summarize().unused_tensors,
              testing::ElementsAre("model.layers.2.enorm.weight", "visual.blocks.0.weight"));
}

TEST(CheckpointWeights, AMissingTensorInAnUnlistedFileSaysSo) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  test::TempDirectory dir;
  test::TensorSet extra;
  extra["model.norm.weight"] = checkpoint.tensors.at("model.norm.weight");
  checkpoint.tensors.erase("model.norm.weight");
  checkpoint.write(dir);
  write_safetensors(dir / "extra.safetensors", extra);
  test::write_text(dir / "model.safetensors.index.json",
                   R"({"weight_map":{"lm_head.weight":"model.safetensors"}})");
  auto weights = CheckpointWeights::open(dir.string(), false, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  const auto missing = (*weights)->tensor_f32("norm.weight", 32);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()),
              testing::AllOf(HasSubstr("extra.safetensors has it"), HasSubstr("--ignore-index")));
}

TEST(CheckpointWeights, Fp8LinearsHaveTheirScalesAsBlocks) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string q = "model.layers.0.self_attn.q_proj.";
  const std::string k = "model.layers.0.self_attn.k_proj.";
  const std::string v = "model.layers.0.self_attn.v_proj.";
  const std::string o = "model.layers.0.self_attn.o_proj.";
  for (const std::string& path : {q, k, v, o}) {
    put(checkpoint.tensors, bytes_of(path + "weight", DType::kF8E4m3, {32, 32}));
  }
  put(checkpoint.tensors, test::bf16_tensor(q + "weight_scale", {}, {0.5F}));
  put(checkpoint.tensors,
      test::f32_tensor(k + "weight_scale", {32, 1}, std::vector<float>(32, 2.0F)));
  put(checkpoint.tensors, test::f32_tensor(v + "weight_scale_inv", {1, 1}, {4.0F}));
  put(checkpoint.tensors, test::byte_tensor(o + "weight_scale", DType::kU8, {32, 1},
                                            std::vector<std::uint8_t>(32, 130)));
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  const auto load = [&](const char* name) {
    return (*opened).linear(std::string("layers.0.self_attn.") + name, 32, 32);
  };
  EXPECT_EQ(load("q_proj")->linear_class, LinearClass::kFp8PerTensor);
  EXPECT_EQ(load("q_proj")->matrix.scale[0], 0.5F);
  EXPECT_EQ(load("k_proj")->linear_class, LinearClass::kFp8PerChannel);
  EXPECT_EQ(load("k_proj")->matrix.scale.size(), 32U);
  EXPECT_EQ(load("v_proj")->linear_class, LinearClass::kFp8Block);
  EXPECT_EQ(load("v_proj")->matrix.scale_block_rows, 128);
  EXPECT_EQ(load("o_proj")->linear_class, LinearClass::kMxfp8);
  EXPECT_EQ(load("o_proj")->matrix.scale[31], 8.0F);  // 2^(130 - 127)
}

TEST(CheckpointWeights, GateAndUpWithDifferentScalesGetOneNotice) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  Opened opened(with_scalar(kExpert + "gate_proj.weight_scale_2", 64.0F));
  EXPECT_THAT(opened.notices,
              testing::Contains(HasSubstr("gate and up have different global scales")));
}

TEST(CheckpointWeights, AnExcludedModuleThatIsQuantisedGetsOneNoticeWithACount) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["quantization_config"]["ignore"] = {"*.experts.*.down_proj", "lm_head"};
  Opened opened(checkpoint);
  EXPECT_THAT(opened.notices, testing::Contains(HasSubstr("*.experts.*.down_proj (8 modules)")));
}

TEST(CheckpointWeights, OpeningTwiceGivesTheSameAndCheckPasses) {
  Opened a(tiny_checkpoint()), b(tiny_checkpoint());
  EXPECT_TRUE((*a).check_all_bytes().ok());
  expect_same_experts(*a, *b);
}

TEST(Findings, ExpertListsAreRunsAndAtMostSixteenItems) {
  EXPECT_EQ(format_experts({3}), "expert 3");
  EXPECT_EQ(format_experts({3, 17, 18, 19, 240}), "experts 3, 17-19, 240");
  std::set<std::int64_t> odd;
  for (std::int64_t i = 0; i < 120; ++i)
    odd.insert(2 * i);
  EXPECT_THAT(format_experts(odd), testing::EndsWith("30 and 104 more (halfbyte check lists all)"));
  EXPECT_THAT(format_experts(odd, 1000), testing::EndsWith("236, 238"));
}

}  // namespace
}  // namespace halfbyte
