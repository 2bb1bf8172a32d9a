// SPDX-License-Identifier: Apache-2.0
//
// What `halfbyte check` and `halfbyte inspect` say (checkpoints.md 2.3, 3, 4, 8 and 9).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "opened_checkpoint.h"

namespace halfbyte {
namespace {

using test::bytes_of;
using test::Opened;
using test::tiny_checkpoint;
using test::TinyCheckpoint;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> findings_of(const TinyCheckpoint& checkpoint) {
  const test::TempDirectory dir;
  checkpoint.write(dir);
  return CheckpointWeights::check(dir.string(), false, nullptr).findings;
}

std::string expert(std::int64_t layer, std::int64_t expert_idx) {
  return fmt::format("model.layers.{}.mlp.experts.{}.", layer, expert_idx);
}

TEST(Check, FindsNothingInAGoodCheckpoint) {
  EXPECT_THAT(findings_of(tiny_checkpoint()), SizeIs(0));
}

// A message lists 16 runs of experts and counts the rest; check lists them all.
TEST(Check, ListsEveryExpertOfAFinding) {
  test::TinySizes sizes;
  sizes.experts = 40;
  TinyCheckpoint checkpoint = tiny_checkpoint(test::TinyDialect::kModelOpt, sizes);
  for (std::int64_t e = 0; e < 40; e += 2)
    checkpoint.tensors.erase(expert(0, e) + "up_proj.weight_scale_2");
  EXPECT_THAT(Opened(checkpoint).error(), HasSubstr("30 and 4 more (halfbyte check lists all)"));
  EXPECT_THAT(findings_of(checkpoint),
              ElementsAre("corrupt_data: layer 0: experts 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, "
                          "22, 24, 26, 28, 30, 32, 34, 36, 38: up_proj.weight_scale_2: absent; "
                          "without it the weights cannot be decoded"));
}

// Scalars are read at opening and block scales later; neither hides the other, and no bad
// projection hides the next.
TEST(Check, ListsBadScalarsAndBadBytesOfEveryProjection) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string path = expert(1, 2);
  put(checkpoint.tensors, test::f32_tensor(path + "up_proj.weight_scale_2", {}, {0.0F}));
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    checkpoint.tensors.at(path + projection + ".weight_scale").bytes[3] = 0x80;
  }
  const std::vector<std::string> findings = findings_of(checkpoint);
  EXPECT_THAT(findings, SizeIs(4));
  EXPECT_THAT(findings, Contains("corrupt_data: layer 1: expert 2: up_proj.weight_scale_2: value "
                                 "0, want finite and > 0 (model.safetensors)"));
  EXPECT_THAT(findings, Contains("corrupt_data: layer 1: expert 2: gate_proj.weight_scale: row 1, "
                                 "group 1: byte 0x80 is negative; want positive E4M3 values "
                                 "(model.safetensors)"));
  EXPECT_THAT(findings, Contains(HasSubstr("expert 2: down_proj.weight_scale: row 3, group 0")));
}

TEST(Check, ListsSixteenBadBlocksOfATensorAndCountsTheRest) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  auto& bytes = checkpoint.tensors.at(expert(0, 1) + "up_proj.weight_scale").bytes;  // [16, 2]
  std::fill(bytes.begin(), bytes.begin() + 20, std::uint8_t{0x81});
  EXPECT_THAT(findings_of(checkpoint), Contains(HasSubstr("row 7, group 1: byte 0x81 is negative; "
                                                          "and 4 more; want")));
}

TEST(Check, FindsNaNAmongFp8Values) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string q = "model.layers.0.self_attn.q_proj.";
  test::TestTensor weight = bytes_of(q + "weight", DType::kF8E4m3, {32, 32});
  weight.bytes[32 * 3 + 5] = 0xFF;
  weight.bytes[32 * 4] = 0x7F;
  put(checkpoint.tensors, weight);
  put(checkpoint.tensors, test::f32_tensor(q + "weight_scale", {}, {1.0F}));
  EXPECT_THAT(findings_of(checkpoint),
              ElementsAre("corrupt_data: layers.0.self_attn: q_proj.weight: row 3, column 5: byte "
                          "0xFF is NaN (2 such bytes) (model.safetensors)"));
}

TEST(Check, FindsValuesThatAreNotFinite) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  auto& gate = checkpoint.tensors.at("model.layers.1.mlp.gate.weight").bytes;  // bf16 [4, 32]
  gate[2 * (32 * 2 + 3) + 1] = 0x7F;
  gate[2 * (32 * 2 + 3)] = 0xC0;
  auto& norm = checkpoint.tensors.at("model.norm.weight").bytes;
  norm[0] = 0x80;
  norm[1] = 0xFF;
  EXPECT_THAT(
      findings_of(checkpoint),
      testing::UnorderedElementsAre(
          "corrupt_data: model.layers.1.mlp.gate.weight: value nan at row 2, column 3, want "
          "finite values (1 are not) (model.safetensors)",
          "corrupt_data: model.norm.weight: value -inf at row 0, column 0, want finite "
          "values (1 are not) (model.safetensors)"));
}

TEST(Check, ValidatesKvScales) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string name = "model.layers.1.self_attn.k_proj.k_scale";
  put(checkpoint.tensors, test::f32_tensor(name, {}, {-1.0F}));
  EXPECT_THAT(findings_of(checkpoint),
              ElementsAre("corrupt_data: layer 1: self_attn: k_proj.k_scale: value -1, want finite "
                          "and > 0 (model.safetensors)"));
}

TEST(Check, SaysThatADirectoryCannotBeOpened) {
  const test::TempDirectory dir;
  const CheckpointReport report = CheckpointWeights::check(dir.string(), false, nullptr);
  EXPECT_EQ(report.weights, nullptr);
  EXPECT_THAT(report.findings, ElementsAre(HasSubstr("not_found")));
}

TEST(Summary, SaysWhichKvScalesALayerHas) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  const std::string path = "model.layers.0.self_attn.";
  put(checkpoint.tensors, test::f32_tensor(path + "k_proj.k_scale", {}, {1.0F}));
  put(checkpoint.tensors, test::f32_tensor(path + "v_proj.v_scale", {}, {1.0F}));
  put(checkpoint.tensors, test::f32_tensor("model.layers.1.self_attn.kv_scale", {}, {1.0F}));
  Opened opened(checkpoint);
  const CheckpointSummary summary = (*opened).summarize();
  EXPECT_EQ(summary.layers[0].kv_scales, "k and v");
  EXPECT_EQ(summary.layers[1].kv_scales, "one for k and v");
  Opened without(tiny_checkpoint());
  EXPECT_EQ((*without).summarize().layers[0].kv_scales, "");
}

// Notices come from the configs, the directory and the tensors: the summary has those of all three.
TEST(Summary, HasEveryNotice) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["quantization_config"]["ignore"] = {"*.experts.*.down_proj"};
  put(checkpoint.tensors,
      test::f32_tensor("model.layers.2.enorm.weight", {32}, std::vector<float>(32, 1.0F)));
  put(checkpoint.tensors, bytes_of("model.layers.2.eh_proj.weight", DType::kBf16, {32, 64}));
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  ASSERT_TRUE((*opened).kv_scales(0).ok());
  const std::vector<std::string> notices = (*opened).summarize().notices;
  EXPECT_EQ(notices, opened.notices);
  EXPECT_THAT(notices, Contains(HasSubstr("*.experts.*.down_proj (8 modules)")));
  EXPECT_THAT(notices, Contains(HasSubstr("layers.2 is read as a draft layer and unused")));
  EXPECT_THAT(notices, Contains(HasSubstr("no KV-cache scales")));
}

TEST(Summary, ClassifiesDraftLayersByTheirOwnTensors) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["num_nextn_predict_layers"] = 1;
  auto& tensors = checkpoint.tensors;
  put(tensors, bytes_of("model.layers.2.enorm.weight", DType::kBf16, {32}));
  put(tensors, bytes_of("model.layers.2.eh_proj.weight", DType::kBf16, {32, 64}));
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string path = std::string("model.layers.2.mlp.experts.0.") + projection;
    put(tensors, bytes_of(path + ".weight", DType::kU8, {32, 16}));
    put(tensors, bytes_of(path + ".weight_scale", DType::kU8, {32, 1}));
  }
  put(tensors, bytes_of("mtp.fc.weight", DType::kBf16, {32, 64}));
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  const CheckpointSummary summary = (*opened).summarize();
  ASSERT_THAT(summary.drafts, SizeIs(2));
  EXPECT_EQ(summary.drafts[0].name, "layers.2");
  EXPECT_EQ(summary.drafts[0].experts, "MXFP4");
  EXPECT_EQ(summary.drafts[0].others, "BF16");
  EXPECT_EQ(summary.drafts[1].name, "mtp");
  EXPECT_THAT(summary.unused_tensors, SizeIs(9));
  EXPECT_THAT(opened.notices, testing::Not(Contains(HasSubstr("draft"))));
}

TEST(TiedHead, StoredTwiceAlikeIsKnownAndUnused) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["tie_word_embeddings"] = true;
  checkpoint.tensors.at("lm_head.weight").bytes =
      checkpoint.tensors.at("model.embed_tokens.weight").bytes;
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  EXPECT_THAT((*opened).summarize().unused_tensors, ElementsAre("lm_head.weight"));
  EXPECT_TRUE((*opened).check_all_bytes().ok());
}

TEST(TiedHead, StoredTwiceDifferentlyIsRefused) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  checkpoint.config["tie_word_embeddings"] = true;
  Opened opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  EXPECT_EQ((*opened).check_all_bytes().to_string(),
            "corrupt_data: model.embed_tokens.weight and lm_head.weight hold different values, but "
            "tie_word_embeddings says they are one: set it to false or remove one of them "
            "(model.safetensors)");
  put(checkpoint.tensors, bytes_of("lm_head.weight", DType::kF32, {8, 32}));
  EXPECT_THAT(Opened(checkpoint).error(), HasSubstr("are BF16 [8, 32] and F32 [8, 32]"));
}

// checkpoints.md 4: of two files that differ, the one that agrees with the tensors.
TEST(ConfigFiles, ThatDifferAreJudgedByTheTensors) {
  const TinyCheckpoint nvfp4 = tiny_checkpoint();
  const auto open_with = [&](const char* config_says, const char* other_says) {
    TinyCheckpoint checkpoint = nvfp4;
    checkpoint.config["quantization_config"]["quant_algo"] = config_says;
    const test::TempDirectory dir;
    checkpoint.write(dir);
    test::write_text(dir / "hf_quant_config.json",
                     fmt::format(R"({{"quantization":{{"quant_algo":"{}"}}}})", other_says));
    auto weights = CheckpointWeights::open(dir.string(), false, nullptr);
    EXPECT_TRUE(weights.ok());
    return std::pair((*weights)->config().quant.algorithm, (*weights)->summarize().notices);
  };
  const auto [wrong, notices] = open_with("FP8", "NVFP4");
  EXPECT_EQ(wrong, "NVFP4");
  EXPECT_THAT(notices, Contains("config.json and hf_quant_config.json: quantization differ in "
                                "quant_algo (FP8 and NVFP4): the latter is taken, the tensors "
                                "agree with it"));
  EXPECT_EQ(open_with("NVFP4", "FP8").first, "NVFP4");
  EXPECT_EQ(open_with("W4A16_NVFP4", "NVFP4").first, "W4A16_NVFP4");  // both agree: the first
}

// Without a single input scale the file was not made for quantised activations.
TEST(ConfigFiles, ThatDifferInActivationsAreJudgedByTheInputScales) {
  TinyCheckpoint checkpoint = tiny_checkpoint();
  std::erase_if(checkpoint.tensors,
                [](const auto& entry) { return entry.first.ends_with("input_scale"); });
  const test::TempDirectory dir;
  checkpoint.write(dir);
  test::write_text(dir / "hf_quant_config.json",
                   R"({"quantization":{"quant_algo":"W4A16_NVFP4"}})");
  auto weights = CheckpointWeights::open(dir.string(), false, nullptr);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)->config().quant.algorithm, "W4A16_NVFP4");
  EXPECT_FALSE(
      (*weights)->expert_layer(0, ActivationMode::kAuto)->declares_activation_quantization);
}

}  // namespace
}  // namespace halfbyte
