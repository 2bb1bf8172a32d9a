// SPDX-License-Identifier: Apache-2.0
//
// E2M1, E4M3, E8M0: every code, and rounding against a search for the nearest value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Value of an E4M3 byte from the definition: (-1)^s * 2^(e - 7) * (1 + m / 8), subnormals m * 2^-9.
double defined_e4m3(int byte) {
  const int exponent = (byte >> 3) & 15;
  const int mantissa = byte & 7;
  const double sign = (byte & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, exponent - 10);
}

TEST(E2m1, EveryCodeHasTheValueOfTheStandard) {
  // OCP Microscaling Formats 1.0, FP4.
  const std::vector<float> magnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (std::size_t code = 0; code < 8; ++code) {
    EXPECT_EQ(e2m1_to_f32(static_cast<std::uint8_t>(code)), magnitudes[code]);
    EXPECT_EQ(e2m1_to_f32(static_cast<std::uint8_t>(code + 8)), -magnitudes[code]);
  }
  EXPECT_TRUE(std::signbit(e2m1_to_f32(8)));
}

TEST(E2m1, TiesGoToTheEvenCode) {
  // Every midpoint of two neighbouring values, from the format's table.
  EXPECT_EQ(f32_to_e2m1(0.25F), 0);
  EXPECT_EQ(f32_to_e2m1(0.75F), 2);
  EXPECT_EQ(f32_to_e2m1(1.25F), 2);
  EXPECT_EQ(f32_to_e2m1(1.75F), 4);
  EXPECT_EQ(f32_to_e2m1(2.5F), 4);
  EXPECT_EQ(f32_to_e2m1(3.5F), 6);
  EXPECT_EQ(f32_to_e2m1(5.0F), 6);
}

TEST(E2m1, ValuesBesideATieGoToTheirSide) {
  const std::vector<float> ties = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  for (std::size_t i = 0; i < ties.size(); ++i) {
    EXPECT_EQ(f32_to_e2m1(std::nextafter(ties[i], 0.0F)), i);
    EXPECT_EQ(f32_to_e2m1(std::nextafter(ties[i], 9.0F)), i + 1);
  }
}

TEST(E2m1, SaturatesAtSixAndKeepsTheSignOfZero) {
  EXPECT_EQ(f32_to_e2m1(6.0F), 7);
  EXPECT_EQ(f32_to_e2m1(1e30F), 7);
  EXPECT_EQ(f32_to_e2m1(-kInfinity), 15);
  EXPECT_EQ(f32_to_e2m1(-0.1F), 8);
  EXPECT_EQ(f32_to_e2m1(-0.0F), 8);
}

TEST(E2m1, LowNibbleIsTheEvenColumn) {
  // 0x21 is [0.5, 1.0] and 0x9A is [-1.0, -0.5] in every NVFP4 file.
  const std::uint8_t row[] = {0x21, 0x9A};
  EXPECT_EQ(e2m1_to_f32(e2m1_code_at(row, 0)), 0.5F);
  EXPECT_EQ(e2m1_to_f32(e2m1_code_at(row, 1)), 1.0F);
  EXPECT_EQ(e2m1_to_f32(e2m1_code_at(row, 2)), -1.0F);
  EXPECT_EQ(e2m1_to_f32(e2m1_code_at(row, 3)), -0.5F);
}

TEST(E4m3, EveryByteHasTheValueOfItsDefinition) {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(byte));
    if ((byte & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << byte;
    } else {
      EXPECT_EQ(static_cast<double>(value), defined_e4m3(byte)) << byte;
    }
    EXPECT_EQ(std::signbit(value), byte >= 128) << byte;
  }
}

TEST(E4m3, EveryByteSurvivesARoundTrip) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto bits = static_cast<std::uint8_t>(byte);
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(bits)), bits);
  }
}

TEST(E4m3, MidpointsGoToTheEvenByteAndNeighboursToTheirSide) {
  for (int byte = 0; byte < 0x7E; ++byte) {
    const double middle = (defined_e4m3(byte) + defined_e4m3(byte + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    EXPECT_EQ(f32_to_e4m3(tie), byte + byte % 2) << byte;
    EXPECT_EQ(f32_to_e4m3(-tie), 0x80 + byte + byte % 2) << byte;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(tie, 0.0F)), byte) << byte;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(tie, 1e9F)), byte + 1) << byte;
  }
}

TEST(E4m3, KnownTiesRoundToEven) {
  // Vectors of the format specification, docs/numerics.md.
  EXPECT_EQ(f32_to_e4m3(1.0625F), 0x38);
  EXPECT_EQ(f32_to_e4m3(1.1875F), 0x3A);
  EXPECT_EQ(f32_to_e4m3(100.0F), 0x6C);
  EXPECT_EQ(e4m3_to_f32(0x6C), 96.0F);
  EXPECT_EQ(f32_to_e4m3(0x1p-10F), 0x00);
  EXPECT_EQ(f32_to_e4m3(1.5F * 0x1p-9F), 0x02);
  EXPECT_EQ(f32_to_e4m3(464.0F), 0x7E);
}

TEST(E4m3, SaturatesAt448AndNeverRoundsToNan) {
  for (const float value : {448.0F, 449.0F, 464.0F, 480.0F, 1e38F, kInfinity}) {
    EXPECT_EQ(f32_to_e4m3(value), 0x7E) << value;
    EXPECT_EQ(f32_to_e4m3(-value), 0xFE) << value;
  }
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7F);
  EXPECT_EQ(f32_to_e4m3(-std::numeric_limits<float>::quiet_NaN()), 0xFF);
}

TEST(E4m3, TinyValuesBecomeASignedZero) {
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(f32_to_e4m3(-1e-30F), 0x80);
}

TEST(E4m3, ProductsWithE2m1AreExactInBf16AndBelow2688) {
  for (unsigned code = 0; code < 16; ++code) {
    for (unsigned byte = 0; byte < 0x7F; ++byte) {
      const float product = e2m1_to_f32(static_cast<std::uint8_t>(code)) *
                            e4m3_to_f32(static_cast<std::uint8_t>(byte));
      EXPECT_EQ(std::bit_cast<std::uint32_t>(product) & 0xFFFFU, 0U);
      EXPECT_LE(std::fabs(product), 2688.0F);
      EXPECT_EQ(std::rint(product * 0x1p10F), product * 0x1p10F);
    }
  }
}

TEST(E8m0, IsAPowerOfTwoOrNan) {
  // OCP Microscaling Formats 1.0: 2^(b - 127), 255 is NaN.
  EXPECT_EQ(e8m0_to_f32(127), 1.0F);
  EXPECT_EQ(e8m0_to_f32(0), 0x1p-127F);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127F);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

}  // namespace
}  // namespace halfbyte
