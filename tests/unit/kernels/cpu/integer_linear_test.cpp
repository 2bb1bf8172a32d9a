// SPDX-License-Identifier: Apache-2.0
//
// Dense NVFP4 linears over integer activations: an expert's panel kernel, nothing added but tiles,
// threads and one scale.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cpu/linear.h"
#include "unit/kernels/cpu/matrices.h"

namespace halfbyte::cpu {
namespace {

using halfbyte::test::MatrixShape;
using halfbyte::test::random_matrix;
using halfbyte::test::random_rows;

constexpr float kScale = 0.3F;

class IntegerLinear : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    const std::string_view missing = missing_feature(*GetParam());
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

std::string table_name(const ::testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->name);
}

INSTANTIATE_TEST_SUITE_P(EveryTable,
                         IntegerLinear,
                         ::testing::ValuesIn(list_kernel_tables().begin(),
                                             list_kernel_tables().end()),
                         table_name);

PackedMatrix pack(const MatrixShape& shape) {
  Result<PackedMatrix> packed = pack_matrix(random_matrix(shape, 1).view);
  return packed.ok() ? std::move(packed).value() : PackedMatrix{};
}

template <typename Record, typename Quantize>
std::vector<Record> make_records(const std::vector<float>& x,
                                 std::int64_t cols,
                                 const Quantize& quantize) {
  const std::int64_t num_tokens = std::ssize(x) / cols;
  std::vector<Record> records(static_cast<std::size_t>(num_tokens * num_records(cols)));
  for (std::int64_t t = 0; t < num_tokens; ++t)
    quantize(x.data() + t * cols, cols, records.data() + t * num_records(cols));
  return records;
}

template <typename Record>
std::vector<float> run(const PackedMatrix& weight,
                       const std::vector<Record>& x,
                       int num_threads,
                       const KernelTable& kernels) {
  const std::int64_t num_tokens = std::ssize(x) / num_records(weight.cols);
  std::vector<float> y(static_cast<std::size_t>(num_tokens * weight.rows));
  ThreadPool pool(num_threads);
  linear(weight, x.data(), num_tokens, {y.data(), weight.rows, kScale}, pool, kernels);
  return y;
}

// integer_kernels.h in plain C++, a row of x and a panel at a time.
template <typename Record, typename Dot>
std::vector<float> want(const PackedMatrix& weight, const std::vector<Record>& x, Dot dot) {
  const std::int64_t per_row = num_records(weight.cols);
  const std::int64_t panel_bytes = per_row * kSuperblockBytes;
  std::vector<float> y;
  for (std::int64_t at = 0; at < std::ssize(x); at += per_row) {
    const Record* row = x.data() + at;
    for (std::int64_t first = 0; first < weight.rows; first += kPanelRows) {
      float sums[kPanelRows];
      dot(weight.data.as<const std::uint8_t>() + first / kPanelRows * panel_bytes, per_row, &row, 1,
          sums);
      for (std::int64_t i = 0; i < std::min(kPanelRows, weight.rows - first); ++i)
        y.push_back(sums[i] * kScale);
    }
  }
  return y;
}

// docs/numerics.md 2: every instruction set, batch and number of threads gives the bits of plain
// C++. 130 rows are nine panels, the last one with two rows.
TEST_P(IntegerLinear, HasTheBitsOfTheKernelsInPlainCpp) {
  for (const MatrixShape& shape :
       {MatrixShape{.rows = 1, .cols = 16}, MatrixShape{.rows = 130, .cols = 144},
        MatrixShape{.rows = 64, .cols = 512}}) {
    const PackedMatrix weight = pack(shape);
    for (const std::int64_t num_tokens : {1, 2, 7, 9, 33}) {
      const std::vector<float> x = random_rows(num_tokens, shape.cols, 2);
      const auto split = make_records<Split15Record>(x, shape.cols, quantize_split15);
      const auto bytes = make_records<Int8Record>(x, shape.cols, quantize_int8);
      for (const int num_threads : {1, 3}) {
        EXPECT_EQ(run(weight, split, num_threads, *GetParam()),
                  want(weight, split, split15_dot_portable))
            << num_tokens << " tokens, " << num_threads << " threads";
        EXPECT_EQ(run(weight, bytes, num_threads, *GetParam()),
                  want(weight, bytes, int8_dot_portable))
            << num_tokens << " tokens, " << num_threads << " threads";
      }
    }
  }
}

TEST_P(IntegerLinear, WritesOnlyItsOwnColumns) {
  const PackedMatrix weight = pack({.rows = 18, .cols = 64});
  const auto x =
      make_records<Split15Record>(random_rows(3, 64, 3), 64, GetParam()->quantize_split15);
  std::vector<float> y(3 * 20, 77.0F);
  ThreadPool pool(2);
  linear(weight, x.data(), 3, {y.data(), 20}, pool, *GetParam());
  for (std::size_t token = 0; token < 3; ++token) {
    EXPECT_EQ(y[token * 20 + 18], 77.0F);
    EXPECT_EQ(y[token * 20 + 19], 77.0F);
    EXPECT_NE(y[token * 20 + 17], 77.0F);
  }
}

}  // namespace
}  // namespace halfbyte::cpu
