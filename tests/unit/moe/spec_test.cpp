// SPDX-License-Identifier: Apache-2.0
#include "moe/spec.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace halfbyte {
namespace {

using testing::HasSubstr;

MoeSpec small_spec() {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 32;
  spec.num_experts = 8;
  spec.top_k = 2;
  return spec;
}

TEST(Spec, ASmallLayerPasses) {
  const Status status = check_spec(small_spec());
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// Rules: nvfp4-moe 1.6 (sizes), 6 (activation), 7 (k, groups, input weighting).
TEST(Spec, EachRuleRefusesAndNamesTheValue) {
  struct Case {
    const char* text;
    StatusCode code;
    std::function<void(MoeSpec&)> spoil;
  };
  const std::vector<Case> cases = {
      {"hidden_size is 72", StatusCode::kInvalidArgument, [](MoeSpec& s) { s.hidden_size = 72; }},
      {"hidden_size is 0", StatusCode::kInvalidArgument, [](MoeSpec& s) { s.hidden_size = 0; }},
      {"intermediate_size is 24", StatusCode::kInvalidArgument,
       [](MoeSpec& s) { s.intermediate_size = 24; }},
      {"num_experts is 0", StatusCode::kInvalidArgument, [](MoeSpec& s) { s.num_experts = 0; }},
      {"top_k is 9", StatusCode::kInvalidArgument, [](MoeSpec& s) { s.top_k = 9; }},
      {"top_k is 0", StatusCode::kInvalidArgument, [](MoeSpec& s) { s.top_k = 0; }},
      {"limit is 0", StatusCode::kInvalidArgument,
       [](MoeSpec& s) {
         s.activation.function = ActivationFunction::kSwigluClamped;
         s.activation.limit = 0.0F;
       }},
      {"limit is nan", StatusCode::kInvalidArgument,
       [](MoeSpec& s) {
         s.activation.function = ActivationFunction::kSwigluClamped;
         s.activation.limit = std::nanf("");
       }},
      {"x is I32", StatusCode::kUnsupported, [](MoeSpec& s) { s.x_dtype = DType::kI32; }},
      {"experts are f32", StatusCode::kUnsupported,
       [](MoeSpec& s) { s.expert_format = WeightFormat::kF32; }},
      {"top_k = 2", StatusCode::kUnsupported,
       [](MoeSpec& s) { s.apply_router_weight_on_input = true; }},
  };
  for (const Case& c : cases) {
    MoeSpec spec = small_spec();
    c.spoil(spec);
    const Status status = check_spec(spec);
    EXPECT_EQ(status.code(), c.code) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
}

TEST(Spec, ModeNamesReadBack) {
  for (const auto mode : {ActivationMode::kAuto, ActivationMode::kW4a16, ActivationMode::kW4a4,
                          ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    EXPECT_EQ(*parse_activation_mode(activation_mode_name(mode)), mode);
  }
  auto unknown = parse_activation_mode("w8a8");
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("w4a4_dynamic"));
}

}  // namespace
}  // namespace halfbyte
