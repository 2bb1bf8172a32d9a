// SPDX-License-Identifier: Apache-2.0
//
// Bit patterns are those of docs/numerics.md; error sweeps compare with fp64.
#include "kernels/reference/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace halfbyte::reference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Size of the last place of `value` as fp32.
double ulp(double value) {
  const int exponent = std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

double exact_sigmoid(float x) {
  return 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
}

// Visits every `stride`th fp32 pattern of both signs up to |x| = limit.
template <typename Visit>
void sweep(float limit, std::uint32_t stride, Visit visit) {
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(limit); bits += stride) {
    visit(std::bit_cast<float>(bits));
    visit(-std::bit_cast<float>(bits));
  }
  visit(limit);
  visit(-limit);
}

TEST(PortableSigmoid, KnownValuesHaveTheirBits) {
  EXPECT_EQ(portable_sigmoid(1.0F), 0.731058598F);
  EXPECT_EQ(portable_sigmoid(4.0F), 0.982013762F);
  EXPECT_EQ(portable_sigmoid(0.0F), 0.5F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(2.0F * portable_sigmoid(2.0F)), 0x3FE17BEAU);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(-3.0F * portable_sigmoid(-3.0F)), 0xBE11B13AU);
}

TEST(PortableSigmoid, ErrorIsAtMost2Point4UlpUpTo87) {
  double worst = 0.0;
  sweep(87.0F, 6007, [&](float x) {
    const double exact = exact_sigmoid(x);
    const double error = std::fabs(static_cast<double>(portable_sigmoid(x)) - exact);
    worst = std::max(worst, error / ulp(exact));
  });
  EXPECT_LE(worst, 2.4);
}

TEST(PortableSigmoid, EndsAreZeroAndOne) {
  EXPECT_EQ(portable_sigmoid(-1e30F), 0.0F);
  EXPECT_EQ(portable_sigmoid(-kInfinity), 0.0F);
  EXPECT_EQ(portable_sigmoid(std::nextafter(-87.0F, -kInfinity)), 0.0F);
  EXPECT_GT(portable_sigmoid(-87.0F), 0.0F);
  EXPECT_EQ(portable_sigmoid(1e30F), 1.0F);
  EXPECT_EQ(portable_sigmoid(kInfinity), 1.0F);
  EXPECT_TRUE(std::isnan(portable_sigmoid(kNan)));
}

TEST(PortableExp, IsCloseToExpAndClamped) {
  double worst = 0.0;
  sweep(87.0F, 6007, [&](float z) {
    const double exact = std::exp(static_cast<double>(z));
    worst = std::max(worst, std::fabs(static_cast<double>(portable_exp(z)) - exact) / ulp(exact));
  });
  EXPECT_LE(worst, 2.4);
  EXPECT_EQ(portable_exp(0.0F), 1.0F);
  EXPECT_EQ(portable_exp(-kInfinity), portable_exp(-87.0F));
  EXPECT_EQ(portable_exp(1e30F), portable_exp(87.0F));
  EXPECT_TRUE(std::isnan(portable_exp(kNan)));
}

TEST(PortableLog1p, IsCloseToLog1pBetweenZeroAndOne) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits <= 0x3F800000U; bits += 3001) {
    const auto u = std::bit_cast<float>(bits);
    const double exact = std::log1p(static_cast<double>(u));
    if (exact == 0.0) continue;
    const double error = std::fabs(static_cast<double>(portable_log1p(u)) - exact);
    worst = std::max(worst, error / ulp(exact));
  }
  EXPECT_LE(worst, 4.0);
  EXPECT_EQ(portable_log1p(0.0F), 0.0F);
}

TEST(PortableSoftplus, ApproachesItsAsymptotes) {
  EXPECT_NEAR(portable_softplus(0.0F), 0.693147181, 1e-7);
  EXPECT_EQ(portable_softplus(50.0F), 50.0F);
  EXPECT_NEAR(static_cast<double>(portable_softplus(-20.0F)) / std::log1p(std::exp(-20.0)), 1.0,
              1e-6);
  EXPECT_TRUE(std::isnan(portable_softplus(kNan)));
}

}  // namespace
}  // namespace halfbyte::reference
