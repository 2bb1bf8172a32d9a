// SPDX-License-Identifier: Apache-2.0
//
// The activation quantiser in exact mode: vectors of docs/numerics.md and properties that follow
// from its steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Block = std::array<float, 16>;

struct Quantized {
  std::array<std::uint8_t, 8> codes = {};
  std::uint8_t scale = 0xAA;
  std::uint8_t code(std::int64_t i) const { return e2m1_code_at(codes.data(), i); }
  float decode(std::int64_t i, float s) const {
    return e2m1_to_f32(code(i)) * e4m3_to_f32(scale) / (1.0F / s);
  }
};

Quantized quantize(const Block& x, float s) {
  Quantized result;
  result.codes.fill(0xAA);
  quantize_activations(x.data(), 1, 16, s, result.codes.data(), &result.scale);
  return result;
}

TEST(QuantizeActivations, TiesOfAllCodesGoToEven) {
  const Quantized q =
      quantize({6, .25, .75, 1.25, 1.75, 2.5, 3.5, 5, -.25, -.3F, 0, -6, .26F, -5.01F, 2.49F, .1F},
               1.0F / 64);
  EXPECT_EQ(q.scale, 0x68);
  EXPECT_THAT(q.codes, ElementsAre(0x07, 0x22, 0x44, 0x66, 0x98, 0xF0, 0xF1, 0x04));
}

TEST(QuantizeActivations, AScaleThatWouldRoundToZeroIsRaisedToTheSmallest) {
  const Quantized q = quantize({.005F, -.002F, .0004F}, 1.0F);
  EXPECT_EQ(q.scale, 0x01);
  EXPECT_EQ(q.code(0), 5);
  EXPECT_EQ(q.code(1), 0xA);
  EXPECT_EQ(q.code(2), 0);
  EXPECT_FLOAT_EQ(q.decode(0, 1.0F), 0.005859375F);
  EXPECT_FLOAT_EQ(q.decode(1, 1.0F), -0.001953125F);
}

TEST(QuantizeActivations, ASaturatedScaleKeepsTheBlockFinite) {
  const Quantized q = quantize({40, 10, -3}, .01F);
  EXPECT_EQ(q.scale, 0x7E);
  EXPECT_EQ(q.code(0), 7);
  EXPECT_EQ(q.code(1), 4);
  EXPECT_EQ(q.code(2), 9);
  EXPECT_NEAR(q.decode(0, .01F), 26.88F, 1e-4F);
  EXPECT_NEAR(q.decode(1, .01F), 8.96F, 1e-4F);
  EXPECT_NEAR(q.decode(2, .01F), -2.24F, 1e-4F);
}

TEST(QuantizeActivations, ADynamicScaleGivesTheLargestBlockScale448) {
  Block x = {3, -1, .7F};
  x[15] = 2.9F;
  const float s = dynamic_row_scale(x.data(), 16);
  EXPECT_FLOAT_EQ(s, 3.0F / 2688.0F);
  const Quantized q = quantize(x, s);
  EXPECT_EQ(q.scale, 0x7E);
  EXPECT_EQ(q.code(0), 7);
  EXPECT_EQ(q.code(1), 0xC);
  EXPECT_EQ(q.code(2), 3);
  EXPECT_EQ(q.code(15), 7);
  EXPECT_FLOAT_EQ(q.decode(1, s), -1.0F);
  EXPECT_FLOAT_EQ(q.decode(2, s), .75F);
}

TEST(QuantizeActivations, AnAllZeroBlockHasScaleZeroForEveryS) {
  for (const float s : {1e-30F, 1.0F, 1e12F}) {
    const Quantized q = quantize({}, s);
    EXPECT_EQ(q.scale, 0);
    EXPECT_THAT(q.codes, Each(0));
  }
  Block negative_zeros;
  negative_zeros.fill(-0.0F);
  EXPECT_THAT(quantize(negative_zeros, 1.0F).codes, Each(0));
}

TEST(QuantizeActivations, ANonFiniteValueMarksItsBlockAlone) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x(48, 1.0F);
    x[20] = bad;
    std::vector<std::uint8_t> codes(24);
    std::vector<std::uint8_t> scales(3);
    quantize_activations(x.data(), 1, 48, 1.0F, codes.data(), scales.data());
    EXPECT_EQ(scales[1], 0x7F);
    for (std::size_t i = 8; i < 16; ++i)
      EXPECT_EQ(codes[i], 0);
    EXPECT_EQ(scales[0], scales[2]);
    EXPECT_NE(scales[0], 0x7F);
    std::vector<float> back(48);
    decode_activation_row(codes.data(), scales.data(), 48, back.data());
    EXPECT_TRUE(std::isnan(back[16]));
    EXPECT_FALSE(std::isnan(back[15]));
  }
}

TEST(QuantizeActivations, AZeroScaleGivesZerosButStillMarksNan) {
  std::vector<float> x(32, 1e-38F);
  x[31] = kNan;
  std::vector<std::uint8_t> codes(16, 0xAA);
  std::vector<std::uint8_t> scales(2, 0xAA);
  quantize_activations(x.data(), 1, 32, 0.0F, codes.data(), scales.data());
  EXPECT_THAT(codes, Each(0));
  EXPECT_THAT(scales, ElementsAre(0x00, 0x7F));
}

// Step by step in fp64 where it matters: the contract of each result, not the code's own way.
void expect_exact_mode(const Block& x, float s) {
  const Quantized q = quantize(x, s);
  const float a = 1.0F / s;
  const float c = a * std::bit_cast<float>(0x3E2AAAABU);
  const float d = 1.0F / a;
  float amax = 0.0F;
  for (const float value : x)
    amax = std::max(amax, std::fabs(value));
  const std::uint8_t rounded = f32_to_e4m3(amax * c);
  ASSERT_EQ(q.scale, rounded == 0 ? 1 : rounded);
  const float multiplier =
      std::min(1.0F / (e4m3_to_f32(q.scale) * d), std::numeric_limits<float>::max());
  for (std::int64_t i = 0; i < 16; ++i)
    ASSERT_EQ(q.code(i), f32_to_e2m1(x[static_cast<std::size_t>(i)] * multiplier));
}

TEST(QuantizeActivations, EveryBf16ValueAsABlockMemberFollowsTheSteps) {
  for (const float s : {1.0F, 1.0F / 64, 0.0123F, 300.0F}) {
    for (unsigned first = 0; first < 0x10000U; first += 16) {
      Block x;
      bool finite = true;
      float amax = 0.0F;
      for (unsigned i = 0; i < 16; ++i) {
        x[i] = bf16_to_f32(static_cast<std::uint16_t>(first + i));
        finite = finite && std::isfinite(x[i]);
        amax = std::max(amax, std::fabs(x[i]));
      }
      if (!finite) {
        ASSERT_EQ(quantize(x, s).scale, 0x7F) << first;
      } else if (amax == 0.0F) {
        ASSERT_EQ(quantize(x, s).scale, 0x00) << first;
      } else {
        expect_exact_mode(x, s);
      }
    }
  }
}

TEST(QuantizeActivations, EveryBf16ValueBesideASixIsNearestOnTheGridOfItsBlock) {
  // With amax 6 and s = 1 the block scale is exactly 1, so codes are plain E2M1 roundings.
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (!(std::fabs(value) <= 6.0F)) continue;
    const Quantized q = quantize({6.0F, value}, 1.0F);
    ASSERT_EQ(q.scale, 0x38);
    ASSERT_EQ(q.code(1), f32_to_e2m1(value)) << bits;
  }
}

TEST(QuantizeActivations, ScalingXAndSByEightKeepsCodesAndScales) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(256);
  for (float& value : x)
    value = normal(random);
  std::vector<float> x8 = x;
  for (float& value : x8)
    value *= 8.0F;
  std::vector<std::uint8_t> codes(128), codes8(128), scales(16), scales8(16);
  quantize_activations(x.data(), 2, 128, .003F, codes.data(), scales.data());
  quantize_activations(x8.data(), 2, 128, .024F, codes8.data(), scales8.data());
  EXPECT_EQ(codes, codes8);
  EXPECT_EQ(scales, scales8);
}

TEST(QuantizeActivations, RowsPastTheCountAreNeitherReadNorWritten) {
  std::vector<float> x(5 * 32, 2.0F);
  std::vector<std::uint8_t> want_codes(3 * 16), want_scales(3 * 2);
  quantize_activations(x.data(), 3, 32, 1.0F, want_codes.data(), want_scales.data());
  for (const float junk : {kNan, 0.0F, 1e30F}) {
    std::fill(x.begin() + 3 * 32, x.end(), junk);
    std::vector<std::uint8_t> codes(5 * 16, 0xEE), scales(5 * 2, 0xEE);
    quantize_activations(x.data(), 3, 32, 1.0F, codes.data(), scales.data());
    EXPECT_TRUE(std::equal(want_codes.begin(), want_codes.end(), codes.begin()));
    EXPECT_TRUE(std::equal(want_scales.begin(), want_scales.end(), scales.begin()));
    EXPECT_THAT(std::vector<std::uint8_t>(codes.begin() + 48, codes.end()), Each(0xEE));
    EXPECT_THAT(std::vector<std::uint8_t>(scales.begin() + 6, scales.end()), Each(0xEE));
  }
}

TEST(DynamicRowScale, LeavesOutNonFiniteValuesAndTinyRows) {
  const std::array<float, 4> mixed = {kNan, -5.25F, kInfinity, 1.0F};
  EXPECT_EQ(dynamic_row_scale(mixed.data(), 4), 5.25F / 2688.0F);
  const std::array<float, 2> nothing_left = {kNan, -kInfinity};
  EXPECT_EQ(dynamic_row_scale(nothing_left.data(), 2), 1.0F);
  const std::array<float, 2> tiny = {0x1p-101F, 0.0F};
  EXPECT_EQ(dynamic_row_scale(tiny.data(), 2), 0.0F);
  const std::array<float, 2> smallest = {0x1p-100F, 0.0F};
  EXPECT_EQ(dynamic_row_scale(smallest.data(), 2), 0x1p-100F / 2688.0F);
}

}  // namespace
}  // namespace halfbyte
