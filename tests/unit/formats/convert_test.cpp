// SPDX-License-Identifier: Apache-2.0
#include "formats/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/bf16.h"
#include "formats/f16.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAre;

TEST(WidenToF32, ReadsUnalignedElementsOfEachType) {
  std::array<std::uint8_t, 9> bytes = {};
  const std::uint16_t bf16[] = {0x3F80, 0xC040};  // 1, -3
  std::memcpy(&bytes[1], bf16, sizeof(bf16));
  std::vector<float> out(2);
  widen_to_f32(DType::kBf16, &bytes[1], 2, out.data());
  EXPECT_THAT(out, ElementsAre(1.0F, -3.0F));

  const std::uint16_t half[] = {0x3C00, 0xC200};  // 1, -3
  std::memcpy(&bytes[1], half, sizeof(half));
  widen_to_f32(DType::kF16, &bytes[1], 2, out.data());
  EXPECT_THAT(out, ElementsAre(1.0F, -3.0F));

  const float f32[] = {1.5F, -2.25F};
  std::memcpy(&bytes[1], f32, sizeof(f32));
  widen_to_f32(DType::kF32, &bytes[1], 2, out.data());
  EXPECT_THAT(out, ElementsAre(1.5F, -2.25F));

  const std::uint8_t e4m3[] = {0x38, 0xFE};
  widen_to_f32(DType::kF8E4m3, e4m3, 2, out.data());
  EXPECT_THAT(out, ElementsAre(1.0F, -448.0F));
}

TEST(NarrowFromF32, RoundsToNearestEven) {
  const float values[] = {1.0F, 1.0F + 0x1p-8F, 1.0F + 0x1p-11F};
  std::array<std::uint16_t, 3> out = {};
  narrow_from_f32(DType::kBf16, values, 3, out.data());
  EXPECT_THAT(out, ElementsAre(0x3F80, 0x3F80, 0x3F80));
  narrow_from_f32(DType::kF16, values, 3, out.data());
  EXPECT_THAT(out, ElementsAre(0x3C00, 0x3C04, 0x3C00));
}

TEST(NarrowFromF32, NoElementsNeedNoPointers) {
  narrow_from_f32(DType::kF32, nullptr, 0, nullptr);
  float untouched = 7.0F;
  widen_to_f32(DType::kF32, nullptr, 0, &untouched);
  EXPECT_EQ(untouched, 7.0F);
}

// Two rows of 16: codes 0x21 (.5, 1) in row 0 and 0x9A (-1, -.5) in row 1.
struct Nvfp4Fixture {
  std::array<std::uint8_t, 16> codes = {};
  std::array<std::uint8_t, 2> block_scale = {0x40, 0x38};  // 2, 1
  CanonicalMatrix matrix;
  Nvfp4Fixture() {
    codes[0] = 0x21;
    codes[8] = 0x9A;
    matrix.rows = 2;
    matrix.cols = 16;
    matrix.codes = codes;
    matrix.block_scale = block_scale;
    matrix.global_scale = 0.3F;
  }
};

TEST(DecodeRow, AppliesTheBlockScaleButNotTheGlobalOne) {
  const Nvfp4Fixture fixture;
  std::array<float, 16> row = {};
  decode_row(fixture.matrix, 0, row.data());
  EXPECT_EQ(row[0], 1.0F);
  EXPECT_EQ(row[1], 2.0F);
  EXPECT_EQ(row[2], 0.0F);
}

TEST(DequantizeRow, AppliesTheGlobalScaleWithOneRounding) {
  const Nvfp4Fixture fixture;
  std::array<float, 16> row = {};
  dequantize_row(fixture.matrix, 1, row.data());
  EXPECT_EQ(row[0], -0.3F);
  EXPECT_EQ(row[1], -0.15F);
}

TEST(DequantizeRow, Fp8UsesTheScaleOfItsBlock) {
  // 3 x 5 in blocks of 2 x 2: scales [2, 3], the last block of each row and column is cut.
  std::vector<std::uint8_t> codes(15, 0x38);  // all 1
  const std::vector<float> scale = {1, 2, 3, 10, 20, 30};
  CanonicalMatrix matrix;
  matrix.format = WeightFormat::kFp8;
  matrix.rows = 3;
  matrix.cols = 5;
  matrix.codes = codes;
  matrix.scale = scale;
  matrix.scale_block_rows = 2;
  matrix.scale_block_cols = 2;
  std::vector<float> row(5);
  dequantize_row(matrix, 1, row.data());
  EXPECT_THAT(row, ElementsAre(1, 1, 2, 2, 3));
  decode_row(matrix, 2, row.data());
  EXPECT_THAT(row, ElementsAre(10, 10, 20, 20, 30));
}

TEST(DequantizeRow, DenseFormatsAreReadFromTheirOwnRow) {
  CanonicalMatrix matrix;
  matrix.rows = 2;
  matrix.cols = 1;
  std::vector<float> row(1);
  const std::uint8_t bf16[] = {0, 0, 0x40, 0xC0};  // 0, -3 little-endian
  matrix.format = WeightFormat::kBf16;
  matrix.codes = bf16;
  dequantize_row(matrix, 1, row.data());
  EXPECT_EQ(row[0], -3.0F);
  const std::uint8_t f16[] = {0, 0, 0x00, 0xC2};
  matrix.format = WeightFormat::kF16;
  matrix.codes = f16;
  dequantize_row(matrix, 1, row.data());
  EXPECT_EQ(row[0], -3.0F);
  const std::uint8_t f32[] = {0, 0, 0, 0, 0, 0, 0x40, 0xC0};
  matrix.format = WeightFormat::kF32;
  matrix.codes = f32;
  dequantize_row(matrix, 1, row.data());
  EXPECT_EQ(row[0], -3.0F);
}

}  // namespace
}  // namespace halfbyte
