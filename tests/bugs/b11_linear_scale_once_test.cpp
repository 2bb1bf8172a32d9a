// SPDX-License-Identifier: Apache-2.0
//
// B11: a per-tensor scale was applied never or twice. Here to the linears of shared experts; the
// routed experts' case is in b07_reciprocal_scales_test.cpp. Identity weights with global scale
// 2^-4: by hand, y = x / 16; y = x would be never, y = x / 256 twice.
#include <gtest/gtest.h>

#include <vector>

#include "model/ops.h"

namespace halfbyte {
namespace {

struct IdentityLinear {
  IdentityLinear() : codes(16 * 8, 0), block_scale(16, 0x38) {  // 0x38 is 1.0
    for (std::size_t i = 0; i < 16; ++i)
      codes[i * 8 + i / 2] = static_cast<std::uint8_t>(i % 2 == 0 ? 0x02 : 0x20);  // code 2: 1.0
    linear.linear_class = LinearClass::kNvfp4;
    linear.input_scale = 1.0F;
    linear.matrix.format = WeightFormat::kNvfp4;
    linear.matrix.rows = 16;
    linear.matrix.cols = 16;
    linear.matrix.codes = codes;
    linear.matrix.block_scale = block_scale;
    linear.matrix.global_scale = 0.0625F;
  }
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
  LoadedLinear linear;
};

class B11 : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<float> run(ActivationMode mode, bool exact_float32) {
    OpsOptions options;
    options.exact_float32 = exact_float32;
    options.num_threads = 1;
    options.max_linear_cols = 16;
    options.max_context_tokens = 1;
    const auto ops = make_dense_ops(GetParam(), options);
    EXPECT_TRUE(ops.ok());
    const IdentityLinear identity;
    const auto prepared = (*ops)->prepare_linear(identity.linear, mode);
    EXPECT_TRUE(prepared.ok());
    // Exact in FP4 under a block scale of 1: codes 7, 4 and 1.
    std::vector<float> x(16, 0.0F);
    x[0] = 6.0F;
    x[5] = -2.0F;
    x[15] = 0.5F;
    std::vector<float> y(16);
    (*ops)->linear(**prepared, Rows(x.data(), 1, 16), Rows(y.data(), 1, 16));
    return y;
  }
};

TEST_P(B11, TheGlobalScaleIsAppliedOnce) {
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4}) {
    const std::vector<float> y = run(mode, true);
    EXPECT_EQ(y[0], 0.375F);
    EXPECT_EQ(y[5], -0.125F);
    EXPECT_EQ(y[15], 0.03125F);
    EXPECT_EQ(y[1], 0.0F);
  }
}

// The same without --dtype float32: half a step of split15 (6 / 16256) off, and far less than a
// second global scale would be.
TEST_P(B11, TheGlobalScaleIsAppliedOnceToIntegers) {
  constexpr float kHalfStep = 6.0F / 32512.0F * 0.0625F;
  const std::vector<float> y = run(ActivationMode::kW4a16, false);
  EXPECT_NEAR(y[0], 0.375F, kHalfStep);
  EXPECT_NEAR(y[5], -0.125F, kHalfStep);
  EXPECT_NEAR(y[15], 0.03125F, kHalfStep);
  EXPECT_EQ(y[1], 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Ops, B11, testing::Values("reference", "cpu"));

}  // namespace
}  // namespace halfbyte
