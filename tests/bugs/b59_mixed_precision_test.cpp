// SPDX-License-Identifier: Apache-2.0
//
// B59: each kind of layer as it is stored, whatever the global name says; B27: experts without
// gate.
#include "loader_bugs.h"

namespace halfbyte {
namespace {

using testing::HasSubstr;

void make_experts_fp8(test::TinyCheckpoint& checkpoint, const std::string& layer) {
  for (int expert = 0; expert < 4; ++expert) {
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      const bool down = std::string_view(projection) == "down_proj";
      const std::string path = fmt::format("{}mlp.experts.{}.{}", layer, expert, projection);
      std::erase_if(checkpoint.tensors,
                    [&](const auto& entry) { return entry.first.starts_with(path + "."); });
      const std::vector<std::int64_t> shape =
          down ? std::vector<std::int64_t>{32, 16} : std::vector<std::int64_t>{16, 32};
      put(checkpoint.tensors, test::byte_tensor(path + ".weight", DType::kF8E4m3, shape,
                                                std::vector<std::uint8_t>(512, 0x38)));
      put(checkpoint.tensors, test::f32_tensor(path + ".weight_scale", {}, {0.5F}));
    }
  }
}

TEST(MixedPrecision, EveryKindIsReadAsStored) {
  test::TinySizes sizes;
  sizes.layers = 4;
  test::TinyCheckpoint checkpoint = test::tiny_checkpoint(test::TinyDialect::kModelOpt, sizes);
  checkpoint.config["num_hidden_layers"] = 3;  // layer 3 is the draft
  make_experts_fp8(checkpoint, "model.layers.1.");
  for (int expert = 0; expert < 4; ++expert) {
    const std::string path = fmt::format("model.layers.2.mlp.experts.{}.", expert);
    test::make_bf16(checkpoint, path + "gate_proj", 16, 32);
    test::make_bf16(checkpoint, path + "up_proj", 16, 32);
    test::make_bf16(checkpoint, path + "down_proj", 32, 16);
  }
  test::OpenedCheckpoint opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  EXPECT_EQ((*opened).expert_layer(0, ActivationMode::kW4a16)->format, WeightFormat::kNvfp4);
  EXPECT_EQ((*opened).expert_layer(1, ActivationMode::kW4a16)->format, WeightFormat::kFp8);
  EXPECT_EQ((*opened).expert_layer(2, ActivationMode::kW4a16)->format, WeightFormat::kBf16);
  EXPECT_EQ((*opened).expert_layer(3, ActivationMode::kW4a16).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ((*opened).expert(1, 2)->down.matrix.scale[0], 0.5F);
  EXPECT_TRUE((*opened).check_all_bytes().ok());
}

TEST(MixedPrecision, TheLayerTableBeatsTheGlobalName) {
  test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  checkpoint.config["quantization_config"] = {
      {"quant_method", "modelopt"},
      {"quant_algo", "MIXED_PRECISION"},
      {"quantized_layers",
       {{"model.layers.0.mlp.experts", {{"quant_algo", "W4A16_NVFP4"}, {"group_size", 16}}},
        {"model.layers.1.mlp.experts", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}}}};
  test::OpenedCheckpoint opened(checkpoint);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  EXPECT_FALSE((*opened).expert_layer(0, ActivationMode::kW4a16)->declares_activation_quantization);
  EXPECT_TRUE((*opened).expert_layer(1, ActivationMode::kW4a16)->declares_activation_quantization);
}

TEST(MixedPrecision, AnUnknownAlgorithmIsRefusedAtParse) {
  test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  checkpoint.config["quantization_config"]["quant_algo"] = "NVFP9";
  EXPECT_THAT(test::OpenedCheckpoint(checkpoint).error(), HasSubstr("'NVFP9' is not known"));
}

// B27: relu2 experts have no gate; one that is there all the same is refused, and the reverse.
TEST(NonGatedExperts, AGateMustFitTheActivation) {
  test::TinyCheckpoint gated = test::tiny_checkpoint();
  gated.config["hidden_act"] = "relu2";
  EXPECT_THAT(test::OpenedCheckpoint(gated).error(), HasSubstr("have a gate_proj"));
  test::TinyCheckpoint bare = test::tiny_checkpoint();
  std::erase_if(bare.tensors, [](const auto& entry) {
    return entry.first.find(".gate_proj.") != std::string::npos;
  });
  EXPECT_THAT(test::OpenedCheckpoint(bare).error(), HasSubstr("have no gate_proj"));
  bare.config["hidden_act"] = "relu2";
  test::OpenedCheckpoint opened(bare);
  ASSERT_TRUE(opened.weights.ok()) << opened.error();
  const auto expert = (*opened).expert(0, 0);
  ASSERT_TRUE(expert.ok());
  EXPECT_EQ(expert->gate.matrix.rows, 0);
  EXPECT_EQ((*opened).expert_layer(0, ActivationMode::kW4a4)->input_scales.gate_up.shape,
            (std::vector<std::int64_t>{4, 1}));
}

}  // namespace
}  // namespace halfbyte
