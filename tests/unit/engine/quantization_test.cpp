// SPDX-License-Identifier: Apache-2.0
#include "engine/quantization.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

QuantPlan plan_of(const std::string& algorithm) {
  QuantPlan plan;
  plan.algorithm = algorithm;
  return plan;
}

TEST(Quantization, IsNamedByWhatTheConfigsSay) {
  EXPECT_EQ(quantization_name({}), "none");
  EXPECT_EQ(quantization_name(plan_of("NVFP4")), "modelopt_fp4");
  EXPECT_EQ(quantization_name(plan_of("W4A16_NVFP4")), "modelopt_fp4");
  EXPECT_EQ(quantization_name(plan_of("MIXED_PRECISION")), "modelopt_mixed");
  EXPECT_EQ(quantization_name(plan_of("FP8")), "FP8");
  QuantPlan plan = plan_of("NVFP4");
  plan.layers = {{"layers.0.mlp", "FP8"}};
  EXPECT_EQ(quantization_name(plan), "modelopt_mixed");
  plan.is_compressed_tensors = true;
  EXPECT_EQ(quantization_name(plan), "compressed-tensors");
}

TEST(Quantization, IsRefusedWhereTheConfigsSayAnother) {
  const QuantPlan plan = plan_of("NVFP4");
  EXPECT_TRUE(check_quantization("auto", plan).ok());
  EXPECT_TRUE(check_quantization("auto", {}).ok());
  EXPECT_TRUE(check_quantization("modelopt_fp4", plan).ok());
  EXPECT_EQ(check_quantization("modelopt_mixed", plan).to_string(),
            "invalid_argument: --quantization is modelopt_mixed, but the checkpoint's config says "
            "modelopt_fp4: leave the option out; what each tensor is follows from the files in any "
            "case");
}

}  // namespace
}  // namespace halfbyte
