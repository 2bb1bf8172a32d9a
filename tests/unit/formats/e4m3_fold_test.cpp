// SPDX-License-Identifier: Apache-2.0
#include "formats/e4m3_fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte {
namespace {

TEST(FoldRow, UsesTheLargestPowerOfTwoThatFits) {
  for (unsigned byte = 1; byte < 0x7F; ++byte) {
    const auto scale = static_cast<std::uint8_t>(byte);
    const std::vector<std::uint8_t> codes(8, 0x77);
    std::vector<std::uint8_t> folded(16);
    const E4m3Fold fold = fold_row_to_e4m3(codes.data(), &scale, 16, folded.data());
    const double largest = 6.0 * static_cast<double>(e4m3_to_f32(scale));
    EXPECT_LE(std::ldexp(largest, fold.exponent), 448.0) << byte;
    EXPECT_GT(std::ldexp(largest, fold.exponent + 1), 448.0) << byte;
  }
}

TEST(FoldRow, MantissasOneQuarterAndHalfWithinTwoToTheTenFoldExactly) {
  // 1, 1.25 and 1.5 times every E2M1 magnitude have at most four significant bits.
  std::mt19937 random(5);
  std::uniform_int_distribution<int> any(0, 1 << 20);
  for (int trial = 0; trial < 200; ++trial) {
    const int top = 12 + any(random) % 4;  // biased exponent of the largest scale
    std::vector<std::uint8_t> scales, codes;
    for (int block = 0; block < 8; ++block) {
      const int exponent = block == 0 ? top : top - any(random) % 11;
      const int mantissa = (any(random) % 3) * 2;  // 1, 1.25, 1.5
      scales.push_back(
          static_cast<std::uint8_t>((std::max(exponent, 1) << 3) | (block == 0 ? 0 : mantissa)));
      for (int i = 0; i < 8; ++i)
        codes.push_back(static_cast<std::uint8_t>(any(random)));
    }
    std::vector<std::uint8_t> folded(128);
    const E4m3Fold fold = fold_row_to_e4m3(codes.data(), scales.data(), 128, folded.data());
    EXPECT_EQ(fold.num_inexact_blocks, 0);
    for (std::int64_t i = 0; i < 128; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const float value =
          e2m1_to_f32(e2m1_code_at(codes.data(), i)) * e4m3_to_f32(scales[index / 16]);
      ASSERT_EQ(std::ldexp(e4m3_to_f32(folded[index]), -fold.exponent), value);
    }
  }
}

TEST(FoldRow, CountsBlocksThatLoseBits) {
  const std::vector<std::uint8_t> scales = {0x7E, 0x01, 0x00};  // 448, 2^-9, 0
  const std::vector<std::uint8_t> codes(24, 0x33);              // 1.5
  std::vector<std::uint8_t> folded(48);
  const E4m3Fold fold = fold_row_to_e4m3(codes.data(), scales.data(), 48, folded.data());
  EXPECT_EQ(fold.exponent, -3);           // 6 * 448 / 8 = 336
  EXPECT_EQ(fold.num_inexact_blocks, 2);  // 1.5 * 1.75 needs five bits; 1.5 * 2^-12 underflows
  EXPECT_EQ(folded[47], 0);
}

TEST(FoldRow, AZeroRowFoldsToZeros) {
  const std::vector<std::uint8_t> scales(2, 0), codes(16, 0xFF);
  std::vector<std::uint8_t> folded(32, 0xAA);
  const E4m3Fold fold = fold_row_to_e4m3(codes.data(), scales.data(), 32, folded.data());
  EXPECT_EQ(fold.exponent, 0);
  EXPECT_EQ(fold.num_inexact_blocks, 0);
  for (const std::uint8_t value : folded)
    EXPECT_EQ(value & 0x7F, 0);
}

TEST(QuantizeRowToE4m3, HasOneScalePer128ColumnsAndACutLastBlock) {
  std::vector<float> x(144, 1.0F);
  x[5] = -896.0F;
  x[130] = 4.48F;
  std::vector<std::uint8_t> codes(144);
  std::vector<float> scale(2);
  quantize_row_to_e4m3(x.data(), 144, codes.data(), scale.data());
  EXPECT_EQ(scale[0], 2.0F);
  EXPECT_EQ(scale[1], 4.48F / 448.0F);
  EXPECT_EQ(codes[5], 0xFE);
  EXPECT_EQ(codes[0], f32_to_e4m3(0.5F));
  EXPECT_EQ(codes[130], 0x7E);
}

TEST(QuantizeRowToE4m3, TinyBlocksAreZeroAndNonFiniteValuesAreNan) {
  std::vector<float> x(256, 0x1p-101F);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  x[130] = std::numeric_limits<float>::infinity();
  x[131] = 448.0F;
  std::vector<std::uint8_t> codes(256);
  std::vector<float> scale(2);
  quantize_row_to_e4m3(x.data(), 256, codes.data(), scale.data());
  EXPECT_EQ(scale[0], 0.0F);
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[7], 0x7F);
  EXPECT_EQ(scale[1], 1.0F);
  EXPECT_EQ(codes[130], 0x7F);
  EXPECT_EQ(codes[131], 0x7E);
}

}  // namespace
}  // namespace halfbyte
