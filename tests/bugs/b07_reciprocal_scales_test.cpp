// SPDX-License-Identifier: Apache-2.0
//
// B07: compressed-tensors stores reciprocals of shape [1]; B11: a scale is applied once. The stored
// numbers are the report's.
#include "loader_bugs.h"

namespace halfbyte {
namespace {

TEST(ReciprocalScales, BothSpellingsGiveTheSameFactor) {
  for (const bool scalar_shape : {false, true}) {
    test::TinyCheckpoint checkpoint = test::tiny_checkpoint(test::TinyDialect::kCompressedTensors);
    const std::string path = "model.layers.0.mlp.experts.1.";
    const std::vector<std::int64_t> shape =
        scalar_shape ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1};
    put(checkpoint.tensors,
        test::f32_tensor(path + "gate_proj.weight_global_scale", shape, {1024.0F}));
    put(checkpoint.tensors,
        test::f32_tensor(path + "up_proj.weight_global_scale", shape, {512.0F}));
    put(checkpoint.tensors,
        test::f32_tensor(path + "down_proj.input_global_scale", shape, {256.0F}));
    test::OpenedCheckpoint opened(checkpoint);
    ASSERT_TRUE(opened.weights.ok()) << opened.error();
    const auto expert = (*opened).expert(0, 1);
    ASSERT_TRUE(expert.ok());
    EXPECT_EQ(expert->gate.matrix.global_scale, std::ldexp(1.0F, -10));
    EXPECT_EQ(expert->up.matrix.global_scale, std::ldexp(1.0F, -9));
    EXPECT_EQ(expert->down.input_scale, std::ldexp(1.0F, -8));
    EXPECT_EQ((*opened).expert_layer(0, ActivationMode::kW4a4)->input_scales.down.values[1],
              std::ldexp(1.0F, -8));
  }
}

// B11: the factor of an expert's down is the file's, neither 1 nor its square.
TEST(ReciprocalScales, ThePerTensorScaleArrivesOnce) {
  test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  for (int expert = 0; expert < 4; ++expert) {
    test::set_scalar(checkpoint,
                     fmt::format("model.layers.1.mlp.experts.{}.down_proj.weight_scale_2", expert),
                     std::ldexp(1.0F, -4 - expert));
  }
  test::OpenedCheckpoint opened(checkpoint);
  for (int expert = 0; expert < 4; ++expert) {
    EXPECT_EQ((*opened).expert(1, expert)->down.matrix.global_scale, std::ldexp(1.0F, -4 - expert));
  }
}

}  // namespace
}  // namespace halfbyte
