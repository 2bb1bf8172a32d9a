// SPDX-License-Identifier: Apache-2.0
//
// The integer forms of activations and the kernels that read them, for every instruction set of
// this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "formats/nvfp4.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear.h"
#include "unit/kernels/cpu/matrices.h"

namespace halfbyte::cpu {
namespace {

using halfbyte::test::OwnedMatrix;
using halfbyte::test::random_matrix;
using halfbyte::test::random_rows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const KernelTable*> tables_of_this_machine() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : list_kernel_tables()) {
    if (missing_feature(*table).empty()) tables.push_back(table);
  }
  return tables;
}

std::string table_name(const ::testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->name);
}

class IntegerKernels : public ::testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(EveryTable,
                         IntegerKernels,
                         ::testing::ValuesIn(tables_of_this_machine()),
                         table_name);

template <typename Record>
std::vector<Record> make_rows(void (*quantize)(const float*, std::int64_t, Record*),
                              const std::vector<float>& x,
                              std::int64_t cols) {
  const std::int64_t num_rows = std::ssize(x) / cols;
  std::vector<Record> rows(static_cast<std::size_t>(num_rows * num_records(cols)));
  for (std::int64_t row = 0; row < num_rows; ++row)
    quantize(x.data() + row * cols, cols, rows.data() + row * num_records(cols));
  return rows;
}

template <typename Record>
std::vector<float> run_dot(
    void (*dot)(const std::uint8_t*, std::int64_t, const Record* const*, int, float*),
    const PackedMatrix& packed,
    const std::vector<Record>& rows) {
  const std::int64_t per_row = num_records(packed.cols);
  std::vector<const Record*> x;
  for (std::int64_t at = 0; at < std::ssize(rows); at += per_row)
    x.push_back(rows.data() + at);
  std::vector<float> sums(x.size() * static_cast<std::size_t>(kPanelRows), -7.0F);
  dot(packed.data.as<const std::uint8_t>(), per_row, x.data(), static_cast<int>(x.size()),
      sums.data());
  return sums;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Gaussian rows whose 64-column groups differ by many powers of two.
std::vector<float> rows_of_many_sizes(std::int64_t num_rows, std::int64_t cols, unsigned seed) {
  std::vector<float> x = random_rows(num_rows, cols, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(x[i], static_cast<int>(i / 64 % 7) * 9 - 30);
  return x;
}

PackedMatrix one_panel(std::int64_t cols, unsigned seed) {
  OwnedMatrix matrix = random_matrix({.rows = 16, .cols = cols}, seed);
  Result<PackedMatrix> packed = pack_matrix(matrix.view);
  return packed.ok() ? std::move(packed).value() : PackedMatrix{};
}

// ------------------------------------------------------------------------------- kernels

// integer_kernels.h: everything that is rounded, and its order, is fixed.
TEST_P(IntegerKernels, HaveTheBitsOfPlainCppForEveryNumberOfRows) {
  for (const std::int64_t cols : {16, 64, 144, 272, 768}) {
    const PackedMatrix packed = one_panel(cols, 1);
    for (std::int64_t num_rows = 1; num_rows <= 49; ++num_rows) {
      std::vector<float> x = rows_of_many_sizes(num_rows, cols, 2);
      if (num_rows > 2) {  // the last row but one is not finite, the last is zero
        x[static_cast<std::size_t>((num_rows - 2) * cols + cols / 2)] = kInfinity;
        std::fill(x.end() - cols, x.end(), 0.0F);
      }
      const auto split = make_rows(quantize_split15, x, cols);
      EXPECT_TRUE(same_bits(run_dot(GetParam()->split15_dot, packed, split),
                            run_dot(kPortableKernels.split15_dot, packed, split)))
          << cols << " columns, " << num_rows << " rows";
      const auto bytes = make_rows(quantize_int8, x, cols);
      EXPECT_TRUE(same_bits(run_dot(GetParam()->int8_dot, packed, bytes),
                            run_dot(kPortableKernels.int8_dot, packed, bytes)))
          << cols << " columns, " << num_rows << " rows";
    }
  }
}

// The largest sums there are: every code 6 or -6, every activation at its group's largest.
TEST_P(IntegerKernels, DoNotOverflowAtTheLargestSums) {
  for (const int code : {0x77, 0xFF, 0x7F}) {
    OwnedMatrix matrix = random_matrix({.rows = 16, .cols = 128}, 3);
    std::fill(matrix.codes.begin(), matrix.codes.end(), static_cast<std::uint8_t>(code));
    std::fill(matrix.block_scale.begin(), matrix.block_scale.end(), 0x7E);
    const Result<PackedMatrix> packed = pack_matrix(matrix.view);
    ASSERT_TRUE(packed.ok());
    for (const float value : {1.0F, -1.0F}) {
      const std::vector<float> x(std::size_t{9} * 128, value);  // more than a tile
      // 6 * 448 a product, and 7F pairs cancel.
      const double sum = code == 0x7F ? 0.0 : 128.0 * 2688.0 * (code == 0x77 ? 1.0 : -1.0);
      const auto split = make_rows(GetParam()->quantize_split15, x, 128);
      for (const float got : run_dot(GetParam()->split15_dot, packed.value(), split))
        EXPECT_NEAR(got, sum * double{value}, std::abs(sum) * 0x1p-22);
      const auto bytes = make_rows(GetParam()->quantize_int8, x, 128);
      for (const float got : run_dot(GetParam()->int8_dot, packed.value(), bytes))
        EXPECT_NEAR(got, sum * double{value}, std::abs(sum) * 0x1p-22);
    }
  }
}

double value_at(const Split15Record* row, std::int64_t col) {
  const Split15Record& record = row[col / 64];
  return (record.high[col % 64] * 128 + record.low[col % 64]) * 2.0 * double{record.scale};
}

double value_at(const Int8Record* row, std::int64_t col) {
  const Int8Record& record = row[col / 64];
  return record.q[col % 64] * 2.0 * double{record.scale[col % 64 / 16]};
}

// docs/numerics.md 6 with the operand that the kernel reads: the chain is 4 blocks and a group, for
// int8 every block.
template <typename Record>
void expect_hard_bound(const OwnedMatrix& matrix,
                       const std::vector<Record>& rows,
                       const std::vector<float>& sums,
                       double chain) {
  const std::int64_t cols = matrix.view.cols;
  std::vector<float> w(static_cast<std::size_t>(cols));
  for (std::int64_t row = 0; row < 16; ++row) {
    dequantize_row(matrix.view, row, w.data());
    for (std::int64_t t = 0; t < std::ssize(sums) / 16; ++t) {
      double want = 0;
      double magnitude = 0;
      for (std::int64_t col = 0; col < cols; ++col) {
        const double product = value_at(rows.data() + t * num_records(cols), col) *
                               double{w[static_cast<std::size_t>(col)]} /
                               double{matrix.view.global_scale};
        want += product;
        magnitude += std::abs(product);
      }
      ASSERT_LE(std::abs(double{sums[static_cast<std::size_t>(t * 16 + row)]} - want),
                chain * 0x1p-24 * magnitude)
          << "row " << row << " of the panel, row " << t << " of x";
    }
  }
}

TEST_P(IntegerKernels, StayWithinTheHardBound) {
  constexpr std::int64_t kCols = 720;
  OwnedMatrix matrix = random_matrix({.rows = 16, .cols = kCols}, 5);
  matrix.view.global_scale = 1.0F;
  const Result<PackedMatrix> packed = pack_matrix(matrix.view);
  ASSERT_TRUE(packed.ok());
  const std::vector<float> x = rows_of_many_sizes(5, kCols, 6);
  const auto split = make_rows(GetParam()->quantize_split15, x, kCols);
  expect_hard_bound(matrix, split, run_dot(GetParam()->split15_dot, packed.value(), split),
                    kCols / 64.0 + 1 + 4);
  const auto bytes = make_rows(GetParam()->quantize_int8, x, kCols);
  expect_hard_bound(matrix, bytes, run_dot(GetParam()->int8_dot, packed.value(), bytes),
                    kCols / 16.0);
}

// A value that is not finite reaches the sums of its own row, all of them, and no other row's.
TEST_P(IntegerKernels, AValueThatIsNotFiniteMakesItsRowNan) {
  const PackedMatrix packed = one_panel(128, 7);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x = random_rows(3, 128, 8);
    x[128 + 70] = bad;
    const auto split = make_rows(GetParam()->quantize_split15, x, 128);
    const auto bytes = make_rows(GetParam()->quantize_int8, x, 128);
    const std::vector<float> a = run_dot(GetParam()->split15_dot, packed, split);
    const std::vector<float> b = run_dot(GetParam()->int8_dot, packed, bytes);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(std::isnan(a[i]), i / 16 == 1);
      EXPECT_EQ(std::isnan(b[i]), i / 16 == 1);
    }
  }
}

// ------------------------------------------------------------------------------- quantisers

template <typename Record>
bool same_records(const std::vector<Record>& a, const std::vector<Record>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(Record)) == 0;
}

TEST_P(IntegerKernels, QuantiseWithTheBitsOfPlainCpp) {
  std::vector<std::vector<float>> cases = {rows_of_many_sizes(3, 208, 9)};
  for (const float value : {0.0F, -0.0F, 0x1p-101F, 0x1p-100F, 0x1p-149F, 3e38F}) {
    cases.emplace_back(208, value);
    cases.back()[100] = -value;
  }
  // Ties: steps of amax / 16256 and of amax / 127 and their halves.
  std::vector<float> ties(208);
  for (std::size_t i = 0; i < ties.size(); ++i)
    ties[i] = 0.5F * static_cast<float>(i) - 50.0F;
  ties[0] = 16256.0F;
  ties[64] = 127.0F;
  cases.push_back(ties);
  for (const std::vector<float>& x : cases) {
    EXPECT_TRUE(same_records(make_rows(GetParam()->quantize_split15, x, 208),
                             make_rows(quantize_split15, x, 208)));
    EXPECT_TRUE(same_records(make_rows(GetParam()->quantize_int8, x, 208),
                             make_rows(quantize_int8, x, 208)));
  }
}

// Also with values that are not finite, a scale of 0, block scales that saturate or are subnormal,
// and every border between codes.
TEST_P(IntegerKernels, QuantiseNvfp4WithTheBitsOfPlainCpp) {
  std::vector<float> x = random_rows(1, 2048, 14);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i < 1024) x[i] = std::ldexp(x[i], static_cast<int>(i / 16) - 32);
    if (i >= 1536) x[i] = static_cast<float>(i % 48) * 0.25F - 6.0F;
  }
  x[1100] = kNan;
  x[1200] = -kInfinity;
  std::fill_n(x.begin() + 1216, 16, 0.0F);
  for (const float s : {1.0F, 0x1p-9F, 0.0123F, 1e-30F, 1e-40F, 1e12F, 0.0F}) {
    std::vector<Int8Record> want(32);
    std::vector<Int8Record> got(32);
    quantize_nvfp4(x.data(), 2048, s, want.data());
    GetParam()->quantize_nvfp4(x.data(), 2048, s, got.data());
    for (std::int64_t block = 0; block < 128; ++block) {
      const Int8Record& a = got[static_cast<std::size_t>(block / 4)];
      const Int8Record& b = want[static_cast<std::size_t>(block / 4)];
      const auto at = static_cast<std::size_t>(block % 4);
      ASSERT_TRUE(a.scale[at] == b.scale[at] || std::isnan(b.scale[at])) << s << " block " << block;
      ASSERT_EQ(std::isnan(a.scale[at]), std::isnan(b.scale[at])) << s << " block " << block;
      ASSERT_EQ(a.start[at], b.start[at]) << s << " block " << block;
      ASSERT_EQ(0, std::memcmp(a.q + at * 16, b.q + at * 16, 16)) << s << " block " << block;
    }
  }
}

// Half a step of the group's own scale, and three roundings of fp32 (the inverse, the product, the
// scale).
TEST(OperandRows, KeepEveryValueToHalfAStep) {
  const std::vector<float> x = rows_of_many_sizes(4, 208, 10);
  const auto split = make_rows(quantize_split15, x, 208);
  const auto bytes = make_rows(quantize_int8, x, 208);
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const std::int64_t row = i / 208 * num_records(208);
    const std::int64_t col = i % 208;
    const double value = double{x[static_cast<std::size_t>(i)]};
    const double split_step = 2.0 * double{split[static_cast<std::size_t>(row + col / 64)].scale};
    EXPECT_NEAR(value_at(split.data() + row, col), value,
                split_step * 0.5 + std::abs(value) * 3 * 0x1p-24);
    const Int8Record& record = bytes[static_cast<std::size_t>(row + col / 64)];
    EXPECT_NEAR(value_at(bytes.data() + row, col), value,
                double{record.scale[col % 64 / 16]} + std::abs(value) * 3 * 0x1p-24);
  }
}

// By hand: amax 16256 makes the scale 1 (stored halved); 128 * 3 - 5 splits into 3 and -5.
TEST(OperandRows, SplitsByHand) {
  std::vector<float> x(16, 0.0F);
  x[0] = -16256.0F;
  x[1] = 379.0F;
  x[2] = 63.0F;
  x[3] = 64.0F;
  const Split15Record record = make_rows(quantize_split15, x, 16)[0];
  EXPECT_EQ(record.scale, 0.5F);
  EXPECT_EQ(record.high[0], -127);
  EXPECT_EQ(record.low[0], 0);
  EXPECT_EQ(record.high[1], 3);
  EXPECT_EQ(record.low[1], -5);
  EXPECT_EQ(record.high[2], 0);
  EXPECT_EQ(record.low[2], 63);
  EXPECT_EQ(record.high[3], 1);
  EXPECT_EQ(record.low[3], -64);
  EXPECT_EQ(record.correction[0], -12 * (-16256 + 379 + 63 + 64));
  // Columns 0 2 1 3.
  EXPECT_EQ(record.q[0], -16256);
  EXPECT_EQ(record.q[1], 63);
  EXPECT_EQ(record.q[2], 379);
  EXPECT_EQ(record.q[3], 64);
}

// e2m1 * e4m3 is exact in every product, so the record holds what the codes say.
TEST(OperandRows, HoldNvfp4ActivationsExactly) {
  const std::vector<float> x = random_rows(1, 144, 11);
  std::vector<std::uint8_t> codes(72);
  std::vector<std::uint8_t> scales(9);
  quantize_activations(x.data(), 1, 144, 0x1p-9F, codes.data(), scales.data());
  std::vector<float> want(144);
  decode_activation_row(codes.data(), scales.data(), 144, want.data());
  std::vector<Int8Record> row(3);
  int8_from_nvfp4(codes.data(), scales.data(), 144, row.data());
  for (std::int64_t col = 0; col < 144; ++col)
    EXPECT_EQ(value_at(row.data(), col), double{want[static_cast<std::size_t>(col)]});
}

// ------------------------------------------------------------------------------- combine

// docs/numerics.md 7: RN(w * y) first, fma after it.
TEST_P(IntegerKernels, AddWeightedRowsWithOneRounding) {
  for (const std::int64_t count : {1, 7, 8, 37}) {
    const std::vector<float> row = random_rows(1, count, 12);
    std::vector<float> acc = random_rows(1, count, 13);
    std::vector<float> want = acc;
    for (const bool first : {false, true}) {
      GetParam()->add_weighted(0.3F, row.data(), count, first, acc.data());
      for (std::size_t i = 0; i < want.size(); ++i) {
        want[i] = first ? 0.3F * row[i] : std::fma(0.3F, row[i], want[i]);
        ASSERT_EQ(acc[i], want[i]);
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::cpu
