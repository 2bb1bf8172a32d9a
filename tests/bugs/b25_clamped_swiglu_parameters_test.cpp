// SPDX-License-Identifier: Apache-2.0
//
// Limit, alpha and beta of a clamped SwiGLU all reach the activation.
#include <gtest/gtest.h>

#include "kernels/reference/activation.h"

namespace halfbyte::reference {
namespace {

constexpr ActivationSpec clamped(float limit, float alpha, float beta) {
  return {ActivationFunction::kSwigluClamped, alpha, beta, limit};
}

TEST(B25ClampedSwigluParameters, AllThreeChangeTheResult) {
  EXPECT_NEAR(activate(clamped(7.0F, 1.702F, 1.0F), 10.0F, -12.0F), -41.9997F, 1e-4F);
  EXPECT_NEAR(activate(clamped(7.0F, 1.702F, 0.0F), 10.0F, -12.0F), -49.00F, 1e-2F);
  EXPECT_NEAR(activate({}, 10.0F, -12.0F), -119.99F, 1e-2F);
}

TEST(B25ClampedSwigluParameters, ALimitAloneKeepsAlphaOneAndBetaZero) {
  const ActivationSpec spec = clamped(7.0F, 1.0F, 0.0F);
  EXPECT_EQ(activate(spec, 2.0F, -3.0F), activate({}, 2.0F, -3.0F));
  EXPECT_EQ(activate(spec, 2.0F, -30.0F), activate({}, 2.0F, -7.0F));
}

}  // namespace
}  // namespace halfbyte::reference
