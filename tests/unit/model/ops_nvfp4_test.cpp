// SPDX-License-Identifier: Apache-2.0
//
// NVFP4 linears of the cpu ops: which form of x each option multiplies, against the reference ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "formats/convert.h"
#include "formats/nvfp4.h"
#include "model/ops.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kCols = 144;
constexpr std::int64_t kTokens = 70;  // more than are made integers at a time

struct Nvfp4Linear {
  Nvfp4Linear() {
    std::mt19937 rng(1);
    for (std::int64_t i = 0; i < kRows * kCols / 2; ++i)
      codes.push_back(static_cast<std::uint8_t>(rng() & 0xFFU));
    for (std::int64_t i = 0; i < kRows * kCols / 16; ++i)
      block_scale.push_back(static_cast<std::uint8_t>(rng() % 0x7FU));
    linear.linear_class = LinearClass::kNvfp4;
    linear.input_scale = 0.01F;
    linear.matrix.rows = kRows;
    linear.matrix.cols = kCols;
    linear.matrix.codes = codes;
    linear.matrix.block_scale = block_scale;
    linear.matrix.global_scale = 0.0123F;
  }
  std::vector<std::uint8_t> codes, block_scale;
  LoadedLinear linear;
};

struct Setup {
  const char* ops = "cpu";
  bool exact_float32 = false;
  int num_threads = 2;
  ActivationMode mode = ActivationMode::kW4a16;
};

std::vector<float> random_tokens() {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * kCols);
  for (float& value : x)
    value = normal(rng);
  return x;
}

// `at_a_time` tokens in each call.
std::vector<float> run(const Setup& setup,
                       const LoadedLinear& linear,
                       std::int64_t at_a_time = kTokens) {
  OpsOptions options;
  options.exact_float32 = setup.exact_float32;
  options.num_threads = setup.num_threads;
  options.max_linear_cols = kCols;
  options.max_context_tokens = 1;
  const auto ops = make_dense_ops(setup.ops, options);
  EXPECT_TRUE(ops.ok());
  const auto prepared = (*ops)->prepare_linear(linear, setup.mode);
  EXPECT_TRUE(prepared.ok());
  std::vector<float> x = random_tokens();
  std::vector<float> y(kTokens * kRows);
  for (std::int64_t first = 0; first < kTokens; first += at_a_time) {
    const std::int64_t count = std::min(at_a_time, kTokens - first);
    (*ops)->linear(**prepared, Rows(x.data() + first * kCols, count, kCols),
                   Rows(y.data() + first * kRows, count, kRows));
  }
  return y;
}

// Sums of one output over groups of 64 columns.
struct Magnitudes {
  double products = 0;  // sum |x||w|
  double steps = 0;     // half a step of split15 for each value of x: sum amax / 32512 * |w|
};

Magnitudes magnitudes_of(const float* x, const std::vector<float>& w) {
  Magnitudes sums;
  for (std::int64_t first = 0; first < kCols; first += 64) {
    double amax = 0;
    double weights = 0;
    for (std::int64_t c = first; c < std::min(kCols, first + 64); ++c) {
      const double weight = std::abs(double{w[static_cast<std::size_t>(c)]});
      amax = std::max(amax, std::abs(double{x[c]}));
      weights += weight;
      sums.products += std::abs(double{x[c]}) * weight;
    }
    sums.steps += amax / 32512.0 * weights;
  }
  return sums;
}

// docs/numerics.md 6, x as it is multiplied: n roundings of |x||w|, where the longest chain is the
// fp32 kernel's (8 products, a line each, the scales) and the reference rounds once. In split15
// each value of x is off by half a step, and its making rounds three times.
void expect_within_the_bound(const std::vector<float>& got,
                             const std::vector<float>& want,
                             const CanonicalMatrix& matrix,
                             const std::vector<float>& x,
                             bool split15) {
  const double roundings = 8 + kCols / 8.0 + 4 + 1 + (split15 ? 3 : 0);
  std::vector<float> w(kCols);
  for (std::int64_t row = 0; row < kRows; ++row) {
    dequantize_row(matrix, row, w.data());
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const Magnitudes sums = magnitudes_of(x.data() + t * kCols, w);
      const double bound = roundings * 0x1p-24 * sums.products + (split15 ? sums.steps : 0.0);
      const auto at = static_cast<std::size_t>(t * kRows + row);
      ASSERT_NEAR(got[at], want[at], bound) << "token " << t << " row " << row;
    }
  }
}

TEST(Nvfp4LinearOps, MultiplySplit15WithinItsBound) {
  const Nvfp4Linear nvfp4;
  const std::vector<float> want = run({.ops = "reference"}, nvfp4.linear);
  const std::vector<float> got = run({}, nvfp4.linear);
  expect_within_the_bound(got, want, nvfp4.linear.matrix, random_tokens(), true);
}

// --dtype float32: activations stay as they are.
TEST(Nvfp4LinearOps, MultiplyFp32WhereItIsAskedFor) {
  const Nvfp4Linear nvfp4;
  const std::vector<float> want = run({.ops = "reference"}, nvfp4.linear);
  const std::vector<float> got = run({.exact_float32 = true}, nvfp4.linear);
  expect_within_the_bound(got, want, nvfp4.linear.matrix, random_tokens(), false);
}

// The codes and block scales of x are exact in every dtype; x is what they stand for.
TEST(Nvfp4LinearOps, MultiplyTheCodesOfW4a4) {
  const Nvfp4Linear nvfp4;
  std::vector<float> x = random_tokens();
  std::vector<std::uint8_t> codes(x.size() / 2), block_scale(x.size() / 16);
  quantize_activations(x.data(), kTokens, kCols, nvfp4.linear.input_scale, codes.data(),
                       block_scale.data());
  for (std::int64_t t = 0; t < kTokens; ++t) {
    decode_activation_row(codes.data() + t * kCols / 2, block_scale.data() + t * kCols / 16, kCols,
                          x.data() + t * kCols);
  }
  for (float& value : x)
    value *= nvfp4.linear.input_scale;
  const std::vector<float> want =
      run({.ops = "reference", .mode = ActivationMode::kW4a4}, nvfp4.linear);
  for (const bool exact : {false, true}) {
    const std::vector<float> got =
        run({.exact_float32 = exact, .mode = ActivationMode::kW4a4}, nvfp4.linear);
    expect_within_the_bound(got, want, nvfp4.linear.matrix, x, false);
  }
}

// A row's bits depend neither on its batch nor on the threads.
TEST(Nvfp4LinearOps, GiveARowTheSameBitsInEveryBatch) {
  const Nvfp4Linear nvfp4;
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4}) {
    const std::vector<float> whole = run({.mode = mode}, nvfp4.linear);
    EXPECT_EQ(run({.num_threads = 1, .mode = mode}, nvfp4.linear), whole);
    EXPECT_EQ(run({.num_threads = 3, .mode = mode}, nvfp4.linear, 1), whole);
    EXPECT_EQ(run({.mode = mode}, nvfp4.linear, 9), whole);
  }
}

// NVFP4_AWQ: x is scaled by columns first; powers of two, so that scaled weights are exact too.
TEST(Nvfp4LinearOps, ScaleTheColumnsOfXFirst) {
  Nvfp4Linear nvfp4;
  nvfp4.linear.pre_quant_scale.assign(kCols, 4.0F);
  const std::vector<float> scaled = run({}, nvfp4.linear);
  nvfp4.linear.pre_quant_scale.clear();
  const std::vector<float> plain = run({}, nvfp4.linear);
  for (std::size_t i = 0; i < plain.size(); ++i)
    ASSERT_EQ(scaled[i], plain[i] * 4.0F);
}

}  // namespace
}  // namespace halfbyte
