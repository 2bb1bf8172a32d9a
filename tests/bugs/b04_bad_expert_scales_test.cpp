// SPDX-License-Identifier: Apache-2.0
//
// B03, B04: scales of experts that calibration never reached. A NaN must not hide behind a maximum,
// wherever its expert stands; a tiny one is legal.
#include "loader_bugs.h"

namespace halfbyte {
namespace {

using test::OpenedCheckpoint;
using test::set_scalar;
using testing::HasSubstr;

TEST(BadExpertScales, EveryBadValueIsNamedWhereverItsExpertStands) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {std::nanf(""), inf, -inf, 0.0F, -0.0F, -1.0F}) {
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      test::TinyCheckpoint weight = test::tiny_checkpoint();
      test::TinyCheckpoint input = test::tiny_checkpoint();
      for (const int expert : {0, 3}) {
        const auto path = fmt::format("model.layers.0.mlp.experts.{}.{}.", expert, projection);
        set_scalar(weight, path + "weight_scale_2", value);
        set_scalar(input, path + "input_scale", value);
      }
      EXPECT_THAT(OpenedCheckpoint(weight).error(),
                  HasSubstr(fmt::format("experts 0, 3: {}.weight_scale_2", projection)));
      OpenedCheckpoint opened(input);
      ASSERT_TRUE(opened.weights.ok()) << opened.error();
      const auto info = (*opened).expert_layer(0, ActivationMode::kW4a4);
      ASSERT_FALSE(info.ok());
      EXPECT_THAT(std::string(info.status().message()),
                  HasSubstr(fmt::format("experts 0, 3: {}.input_scale", projection)));
    }
  }
}

TEST(BadExpertScales, ATinyInputScaleIsLegal) {
  for (const float value : {1.4e-45F, 1.18e-38F}) {
    test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
    set_scalar(checkpoint, "model.layers.0.mlp.experts.3.up_proj.input_scale", value);
    OpenedCheckpoint opened(checkpoint);
    const auto info = (*opened).expert_layer(0, ActivationMode::kW4a4);
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->input_scales.gate_up.values[7], value);
  }
}

}  // namespace
}  // namespace halfbyte
