// SPDX-License-Identifier: Apache-2.0
//
// BF16 and IEEE half: every bit pattern, and rounding at every midpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "formats/bf16.h"
#include "formats/f16.h"

namespace halfbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Value of a half from the definition.
double defined_f16(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 10) & 31;
  const int mantissa = static_cast<int>(bits & 1023U);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(F16, EveryFiniteValueIsItsDefinitionAndSurvivesARoundTrip) {
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    if ((bits & 0x7C00U) == 0x7C00U) continue;
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(static_cast<double>(value), defined_f16(bits)) << bits;
    ASSERT_EQ(f32_to_f16(value), bits);
  }
}

TEST(F16, MidpointsGoToTheEvenPatternAndNeighboursToTheirSide) {
  for (unsigned bits = 0; bits < 0x7BFFU; ++bits) {
    const auto tie = static_cast<float>((defined_f16(bits) + defined_f16(bits + 1)) / 2);
    ASSERT_EQ(f32_to_f16(tie), bits + bits % 2) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(tie, 0.0F)), bits) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(tie, 1e9F)), bits + 1) << bits;
  }
}

TEST(F16, OverflowsToInfinityFrom65520) {
  // 65504 is the largest half; 65520 is the midpoint to the next power of two.
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xFC00);
  EXPECT_EQ(f16_to_f32(0xFC00), -kInfinity);
}

TEST(F16, NanStaysNan) {
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7C01)));
  const std::uint16_t bits = f32_to_f16(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(f16_to_f32(bits)));
}

TEST(Bf16, EveryPatternSurvivesARoundTrip) {
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_f32(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(round_to_bf16(value)));
    } else {
      ASSERT_EQ(f32_to_bf16(value), half);
    }
  }
}

TEST(Bf16, TiesGoToTheEvenPattern) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Bf16, ANanWithALowPayloadDoesNotBecomeInfinity) {
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7F800001U))));
}

}  // namespace
}  // namespace halfbyte
