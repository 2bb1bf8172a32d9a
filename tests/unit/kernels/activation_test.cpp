// SPDX-License-Identifier: Apache-2.0
//
// Vectors of docs/numerics.md, "Activation functions".
#include "kernels/reference/activation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/reference/oracle.h"

namespace halfbyte::reference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr ActivationSpec kSwiglu = {};
constexpr ActivationSpec kRelu2 = {.function = ActivationFunction::kRelu2};
constexpr ActivationSpec kGeglu = {.function = ActivationFunction::kGegluTanh};

constexpr ActivationSpec clamped(float limit, float alpha, float beta) {
  return {ActivationFunction::kSwigluClamped, alpha, beta, limit};
}

bool is_plus_zero(float value) {
  return std::bit_cast<std::uint32_t>(value) == 0;
}

TEST(Activate, SwigluTakesTheSigmoidOfTheGate) {
  EXPECT_NEAR(activate(kSwiglu, 2.0F, -3.0F), -5.28478F, 1e-5F);
  EXPECT_NEAR(activate(kSwiglu, -3.0F, 2.0F), -0.28456F, 1e-5F);  // swapped operands differ
}

TEST(Activate, Relu2SquaresThePositivePartOfUp) {
  EXPECT_EQ(activate(kRelu2, 123.0F, -3.0F), 0.0F);
  EXPECT_EQ(activate(kRelu2, -5.0F, 3.0F), 9.0F);
  EXPECT_TRUE(std::isnan(activate(kRelu2, 0.0F, kNan)));
}

TEST(Activate, GegluTanhIsTheTanhForm) {
  EXPECT_NEAR(activate(kGeglu, 1.5F, 2.0F), 2.79914F, 1e-5F);
  for (const float g : {-4.0F, -0.7F, 0.0F, 0.3F, 2.0F, 5.0F}) {
    const double x = static_cast<double>(g);
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(static_cast<double>(activate(kGeglu, g, 1.0F)), 0.5 * x * (1.0 + std::tanh(inner)),
                2e-6);
  }
}

TEST(Activate, LimitsWithoutEffectGivePlainSwiglu) {
  for (const float g : {-20.0F, -1.0F, 0.5F, 12.0F})
    EXPECT_EQ(activate(clamped(kInfinity, 1.0F, 0.0F), g, 1.5F), activate(kSwiglu, g, 1.5F));
}

TEST(Activate, AVanishingSigmoidGivesPlusZeroUnlessTheOtherFactorIsNan) {
  for (const ActivationSpec& spec : {kSwiglu, clamped(7.0F, 1.702F, 1.0F), kGeglu}) {
    for (const float g : {-1e30F, -kInfinity}) {
      EXPECT_TRUE(is_plus_zero(activate(spec, g, 3.0F)));
      EXPECT_TRUE(is_plus_zero(activate(spec, g, -3.0F)));
      EXPECT_TRUE(is_plus_zero(activate(spec, g, kInfinity)));
      EXPECT_TRUE(std::isnan(activate(spec, g, kNan)));
    }
  }
}

TEST(Activate, NanInGivesNanOut) {
  for (const ActivationSpec& spec : {kSwiglu, clamped(7.0F, 1.702F, 1.0F), kGeglu}) {
    EXPECT_TRUE(std::isnan(activate(spec, kNan, 1.0F)));
    EXPECT_TRUE(std::isnan(activate(spec, 1.0F, kNan)));
  }
}

TEST(OracleActivate, AgreesWithTheFp32FormWithinItsRoundings) {
  for (const ActivationSpec& spec : {kSwiglu, clamped(2.0F, 1.702F, 1.0F), kRelu2, kGeglu}) {
    for (float g = -9.0F; g < 9.0F; g += 0.37F) {
      for (float u = -5.0F; u < 5.0F; u += 0.91F) {
        const double want = oracle_activate(spec, static_cast<double>(g), static_cast<double>(u));
        EXPECT_NEAR(static_cast<double>(activate(spec, g, u)), want,
                    1e-6 * (1.0 + std::fabs(want)));
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::reference
