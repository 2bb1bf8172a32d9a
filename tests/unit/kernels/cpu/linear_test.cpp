// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "unit/kernels/cpu/matrices.h"

namespace halfbyte::cpu {
namespace {

using halfbyte::test::exact_dot;
using halfbyte::test::ExactDot;
using halfbyte::test::MatrixShape;
using halfbyte::test::OwnedMatrix;
using halfbyte::test::random_matrix;
using halfbyte::test::random_rows;

// Sizes that divide no tile, and one that divides all.
const std::vector<MatrixShape> kShapes = {
    {.format = WeightFormat::kNvfp4, .rows = 1, .cols = 16},
    {.format = WeightFormat::kNvfp4, .rows = 17, .cols = 144},
    {.format = WeightFormat::kNvfp4, .rows = 64, .cols = 128},
    {.format = WeightFormat::kNvfp4, .rows = 40, .cols = 2880},
    {.format = WeightFormat::kFp8, .rows = 40, .cols = 272},
    {.format = WeightFormat::kFp8,
     .rows = 33,
     .cols = 100,
     .scale_block_rows = 33,
     .scale_block_cols = 100},
    {.format = WeightFormat::kFp8,
     .rows = 33,
     .cols = 260,
     .scale_block_rows = 1,
     .scale_block_cols = 1000},
    {.format = WeightFormat::kFp8,
     .rows = 20,
     .cols = 64,
     .scale_block_rows = 7,
     .scale_block_cols = 16},
    {.format = WeightFormat::kFp8,
     .rows = 20,
     .cols = 50,
     .scale_block_rows = 7,
     .scale_block_cols = 5},
    {.format = WeightFormat::kBf16, .rows = 35, .cols = 131},
    {.format = WeightFormat::kBf16, .rows = 16, .cols = 64},
    {.format = WeightFormat::kF16, .rows = 35, .cols = 131},
    {.format = WeightFormat::kF32, .rows = 35, .cols = 7},
    // Nine panels: one row of x takes four at a time, then the rest.
    {.format = WeightFormat::kNvfp4, .rows = 130, .cols = 144},
    {.format = WeightFormat::kFp8,
     .rows = 130,
     .cols = 260,
     .scale_block_rows = 40,
     .scale_block_cols = 64},
    {.format = WeightFormat::kBf16, .rows = 130, .cols = 131},
    {.format = WeightFormat::kF16, .rows = 144, .cols = 64},
    {.format = WeightFormat::kF32, .rows = 130, .cols = 36},
};

class LinearTest : public ::testing::TestWithParam<std::tuple<const KernelTable*, std::size_t>> {
 protected:
  void SetUp() override {
    const std::string_view missing = missing_feature(kernels());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  static const KernelTable& kernels() { return *std::get<0>(GetParam()); }
  static const MatrixShape& shape() { return kShapes[std::get<1>(GetParam())]; }

  std::vector<float> run(const PackedMatrix& packed, const std::vector<float>& x, bool scaled) {
    const std::int64_t num_tokens = std::ssize(x) / packed.cols;
    std::vector<float> y(static_cast<std::size_t>(num_tokens * packed.rows), -1.0F);
    const float scale = scaled ? packed.global_scale : 1.0F;
    linear(packed, x.data(), num_tokens, {y.data(), packed.rows, scale}, pool_, kernels());
    return y;
  }

  ThreadPool pool_{2};
};

// docs/numerics.md: |y - o| <= n * 2^-24 * S with n the longest chain of additions, here 8 products
// of a line, cols / 8 lines, and the roundings of the scales.
TEST_P(LinearTest, StaysWithinTheHardBound) {
  const OwnedMatrix matrix = random_matrix(shape(), 1);
  const std::vector<float> x = random_rows(5, shape().cols, 2);
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok()) << packed.status().to_string();
  ThreadPool pool(2);
  const std::vector<float> y = run(packed.value(), x, true);
  std::vector<float> w(static_cast<std::size_t>(shape().cols));
  const double bound = static_cast<double>(8 + shape().cols / 8 + 4) * 0x1p-24;
  for (std::int64_t row = 0; row < shape().rows; ++row) {
    dequantize_row(matrix.view, row, w.data());
    for (std::int64_t token = 0; token < 5; ++token) {
      const ExactDot want = exact_dot(w.data(), x.data() + token * shape().cols, shape().cols);
      const auto got = static_cast<double>(y[static_cast<std::size_t>(token * shape().rows + row)]);
      ASSERT_LE(std::abs(got - want.value), bound * want.magnitude)
          << "token " << token << " row " << row << " got " << got << " want " << want.value;
    }
  }
}

// The contract of linear.h: each element's order of additions depends on cols alone.
TEST_P(LinearTest, ARowAloneHasTheBitsItHasInABatch) {
  const OwnedMatrix matrix = random_matrix(shape(), 3);
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok());
  for (const std::int64_t num_tokens : {2, 3, 4, 7}) {
    const std::vector<float> x = random_rows(num_tokens, shape().cols, 4);
    const std::vector<float> batch = run(packed.value(), x, false);
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      const std::vector<float> row(x.begin() + token * shape().cols,
                                   x.begin() + (token + 1) * shape().cols);
      const std::vector<float> alone = run(packed.value(), row, false);
      EXPECT_EQ(0, std::memcmp(alone.data(), batch.data() + token * shape().rows,
                               alone.size() * sizeof(float)))
          << num_tokens << " tokens, token " << token;
    }
  }
}

std::vector<std::tuple<const KernelTable*, std::size_t>> every_table_and_shape() {
  std::vector<std::tuple<const KernelTable*, std::size_t>> cases;
  for (const KernelTable* table : list_kernel_tables()) {
    for (std::size_t shape = 0; shape < kShapes.size(); ++shape)
      cases.emplace_back(table, shape);
  }
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<LinearTest::ParamType>& info) {
  const MatrixShape& shape = kShapes[std::get<1>(info.param)];
  const char* const formats[] = {"nvfp4", "fp8", "bf16", "f16", "f32"};
  return std::string(std::get<0>(info.param)->name) + "_" +
         std::to_string(std::get<1>(info.param)) + "_" + formats[static_cast<int>(shape.format)] +
         "_" + std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
}

INSTANTIATE_TEST_SUITE_P(EveryTable,
                         LinearTest,
                         ::testing::ValuesIn(every_table_and_shape()),
                         case_name);

TEST(Linear, TheOutputScaleMultipliesTheFinishedSumOnce) {
  OwnedMatrix matrix = random_matrix({.rows = 16, .cols = 64}, 5);
  matrix.view.global_scale = 0.3F;
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok());
  const std::vector<float> x = random_rows(1, 64, 6);
  ThreadPool pool(1);
  std::vector<float> plain(16), scaled(16);
  linear(packed.value(), x.data(), 1, {plain.data(), 16}, pool);
  linear(packed.value(), x.data(), 1, {scaled.data(), 16, packed->global_scale}, pool);
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_EQ(scaled[i], plain[i] * 0.3F);
}

// A row stride wider than the matrix leaves the columns between untouched.
TEST(Linear, WritesOnlyItsOwnColumns) {
  const OwnedMatrix matrix = random_matrix({.rows = 18, .cols = 16}, 7);
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok());
  const std::vector<float> x = random_rows(6, 16, 8);
  ThreadPool pool(2);
  std::vector<float> y(6 * 20, 77.0F);
  linear(packed.value(), x.data(), 6, {y.data(), 20}, pool);
  for (std::size_t token = 0; token < 6; ++token) {
    EXPECT_EQ(y[token * 20 + 18], 77.0F);
    EXPECT_EQ(y[token * 20 + 19], 77.0F);
    EXPECT_NE(y[token * 20 + 17], 77.0F);
  }
}

TEST(Linear, NoTokensIsNoWork) {
  const OwnedMatrix matrix = random_matrix({.rows = 16, .cols = 16}, 9);
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok());
  ThreadPool pool(1);
  float y = 5.0F;
  linear(packed.value(), static_cast<const float*>(nullptr), 0, {&y, 16}, pool);
  EXPECT_EQ(y, 5.0F);
}

// Padding of the last panel and superblock multiplies nothing: values past a row's end are not
// read.
TEST(Linear, ANanBehindARowDoesNotReachIt) {
  for (const WeightFormat format : {WeightFormat::kNvfp4, WeightFormat::kBf16}) {
    const OwnedMatrix matrix = random_matrix({.format = format, .rows = 3, .cols = 16}, 10);
    const Result<PackedMatrix> packed = pack_matrix(matrix.view);
    ASSERT_TRUE(packed.ok());
    std::vector<float> x(128, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < 16; ++i)
      x[i] = 1.0F;
    for (const KernelTable* table : list_kernel_tables()) {
      if (!missing_feature(*table).empty()) continue;
      ThreadPool pool(1);
      float y[3] = {};
      linear(packed.value(), x.data(), 1, {y, 3}, pool, *table);
      for (const float value : y)
        EXPECT_TRUE(std::isfinite(value)) << table->name;
    }
  }
}

TEST(PackMatrix, RefusesScalesThatAreNotNumbersAndSaysWhere) {
  OwnedMatrix matrix = random_matrix({.rows = 4, .cols = 32}, 11);
  matrix.block_scale[2 * 2 + 1] = 0x7F;
  const Result<PackedMatrix> nan = pack_matrix(matrix.view);
  ASSERT_FALSE(nan.ok());
  EXPECT_EQ(nan.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(std::string(nan.status().message()), ::testing::HasSubstr("row 2 block 1"));
  matrix.block_scale[2 * 2 + 1] = 0x80;
  EXPECT_FALSE(pack_matrix(matrix.view).ok());
}

TEST(PackMatrix, RefusesSpansThatDoNotMatchTheShape) {
  OwnedMatrix matrix = random_matrix({.rows = 4, .cols = 32}, 12);
  matrix.view.codes = matrix.view.codes.first(63);
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.status().message(), "codes: want 64 elements, got 63");
}

}  // namespace
}  // namespace halfbyte::cpu
