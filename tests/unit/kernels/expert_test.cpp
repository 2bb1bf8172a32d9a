// SPDX-License-Identifier: Apache-2.0
//
// The reference expert against hand-computed vectors, the fp64 oracle and its own modes.
#include "kernels/reference/expert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "formats/bf16.h"
#include "formats/convert.h"
#include "formats/e4m3.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/oracle.h"
#include "unit/kernels/test_expert.h"

namespace halfbyte::reference {
namespace {

using test::exact_row;
using test::random_row;
using test::TestExpert;
using ::testing::Each;

constexpr ActivationSpec kSwiglu = {};
constexpr ActivationSpec kRelu2 = {.function = ActivationFunction::kRelu2};
constexpr ActivationMode kAllModes[] = {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                        ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8};

struct ExpertRun {
  std::vector<float> h, y;
  std::vector<std::uint8_t> h_codes, h_block_scale;
  float h_row_scale = -1.0F;
};

ExpertRun run(const TestExpert& expert,
              const ActivationSpec& activation,
              ActivationMode mode,
              const ExpertScalars& scalars,
              const std::vector<float>& x) {
  ExpertRun result;
  const auto intermediate = static_cast<std::size_t>(expert.view.up.rows);
  result.h.resize(intermediate);
  result.y.resize(static_cast<std::size_t>(expert.view.down.rows));
  result.h_codes.resize(intermediate / 2);
  result.h_block_scale.resize(intermediate / 16);
  run_expert_row(
      expert.view, activation, mode, scalars, x.data(), result.y.data(),
      {result.h.data(), result.h_codes.data(), result.h_block_scale.data(), &result.h_row_scale});
  return result;
}

std::vector<double> oracle(const TestExpert& expert,
                           const ActivationSpec& activation,
                           ActivationMode mode,
                           const ExpertScalars& scalars,
                           const std::vector<float>& x,
                           bool bf16_h = false) {
  std::vector<double> y(static_cast<std::size_t>(expert.view.down.rows));
  oracle_expert_row(expert.view, activation, mode, scalars, x.data(), bf16_h, nullptr, y.data());
  return y;
}

// Weights 1 everywhere; gate 2^-5 and up 2^-2 have to keep their own global scales.
void fill_two_alphas(TestExpert& expert) {
  expert.view.gate = expert.constant_matrix(16, 256, 2, 0x38);
  expert.view.up = expert.constant_matrix(16, 256, 2, 0x38);
  expert.view.down = expert.constant_matrix(256, 16, 2, 0x38);
  expert.view.gate.global_scale = 0x1p-5F;
  expert.view.up.global_scale = 0x1p-2F;
}

TEST(RunExpertRow, GateAndUpUseTheirOwnGlobalScale) {
  // docs/numerics.md: gate 4, up 32, h = silu(4) * 32 = 125.6978. The gate's scale on both gives
  // 15.7, the larger one on both 1024. E4M3 cannot hold 2 beside 6: one of its roundings is 2^-4.
  TestExpert expert;
  fill_two_alphas(expert);
  for (const ActivationMode mode : kAllModes) {
    const ExpertRun result = run(expert, kSwiglu, mode, expert.scalars(), exact_row(256));
    for (const float h : result.h)
      EXPECT_NEAR(h, 125.6978F, mode == ActivationMode::kW4a8 ? 125.0F * 0x1p-4F : 1e-4F);
  }
}

TEST(RunExpertRow, ARatioOfGlobalScalesStaysExactBesideTheSmallestBlockScales) {
  // Folding gate's 2^-6 into block scales of 2^-9 would make them zero.
  TestExpert expert;
  expert.view.gate = expert.constant_matrix(16, 256, 2, 0x01);
  expert.view.up = expert.constant_matrix(16, 256, 2, 0x01);
  expert.view.down = expert.constant_matrix(256, 16, 2, 0x38);
  expert.view.gate.global_scale = 0x1p-6F;
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4}) {
    const ExpertRun result = run(expert, kSwiglu, mode, expert.scalars(), exact_row(256));
    EXPECT_THAT(result.h, Each(activate(kSwiglu, 0x1p-8F, 0x1p-2F)));
  }
}

TEST(RunExpertRow, EveryModeMatchesItsOracle) {
  for (const ActivationSpec& activation : {kSwiglu, kRelu2}) {
    TestExpert expert;
    TestExpert::fill_random(expert, 160, 96, activation.gated(), 1);
    const ExpertScalars scalars = expert.scalars(3.5F / 2688, 1.0F / 2688);
    for (const ActivationMode mode : kAllModes) {
      for (unsigned seed = 0; seed < 4; ++seed) {
        const std::vector<float> x = random_row(160, seed);
        const ExpertRun result = run(expert, activation, mode, scalars, x);
        // A code of h may flip where fp32 and fp64 differ; w4a16 has no codes.
        const double bound = mode == ActivationMode::kW4a16 ? 2e-6 : 3e-3;
        EXPECT_LE(rel_l2(result.y, oracle(expert, activation, mode, scalars, x)), bound);
      }
    }
  }
}

TEST(RunExpertRow, QuantisedModesLieInTheirBandAroundW4a16) {
  TestExpert expert;
  TestExpert::fill_random(expert, 512, 256, true, 2);
  const std::vector<float> x = random_row(512, 3);
  const ExpertRun exact = run(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x);
  float x_amax = 0.0F;
  float h_amax = 0.0F;
  for (const float value : x)
    x_amax = std::max(x_amax, std::fabs(value));
  for (const float value : exact.h)
    h_amax = std::max(h_amax, std::fabs(value));
  const ExpertScalars scalars = expert.scalars(x_amax / 2688, h_amax / 2688);
  const std::vector<double> want = oracle(expert, kSwiglu, ActivationMode::kW4a16, scalars, x);
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    const double error = rel_l2(run(expert, kSwiglu, mode, scalars, x).y, want);
    EXPECT_GT(error, 0.08);
    EXPECT_LT(error, 0.25);
  }
  EXPECT_LT(rel_l2(run(expert, kSwiglu, ActivationMode::kW4a8, scalars, x).y, want), 0.08);
}

TEST(RunExpertRow, W4a16DoesNotReadInputScales) {
  TestExpert expert;
  TestExpert::fill_random(expert, 64, 32, true, 4);
  const std::vector<float> x = random_row(64, 5);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    EXPECT_EQ(run(expert, kSwiglu, mode, expert.scalars(nan, nan), x).y,
              run(expert, kSwiglu, mode, expert.scalars(), x).y);
  }
}

TEST(RunExpertRow, DynamicEqualsStaticWithTheRowsOwnScales) {
  TestExpert expert;
  TestExpert::fill_random(expert, 160, 96, true, 6);
  const std::vector<float> x = random_row(160, 7);
  const ExpertRun dynamic = run(expert, kSwiglu, ActivationMode::kW4a4Dynamic, expert.scalars(), x);
  EXPECT_EQ(dynamic.h_row_scale, dynamic_row_scale(dynamic.h.data(), 96));
  const ExpertScalars scalars =
      expert.scalars(dynamic_row_scale(x.data(), 160), dynamic.h_row_scale);
  const ExpertRun fixed = run(expert, kSwiglu, ActivationMode::kW4a4, scalars, x);
  EXPECT_EQ(dynamic.h, fixed.h);
  EXPECT_EQ(dynamic.h_codes, fixed.h_codes);
  EXPECT_EQ(dynamic.h_block_scale, fixed.h_block_scale);
  EXPECT_EQ(dynamic.y, fixed.y);
}

TEST(RunExpertRow, RowsWithoutContentGiveExactZero) {
  TestExpert expert;
  TestExpert::fill_random(expert, 32, 16, true, 8);
  for (const ActivationMode mode : kAllModes)
    EXPECT_THAT(run(expert, kSwiglu, mode, expert.scalars(), std::vector<float>(32, 0.0F)).y,
                Each(0.0F));
  const std::vector<float> tiny(32, 0x1p-101F);
  EXPECT_THAT(run(expert, kSwiglu, ActivationMode::kW4a4Dynamic, expert.scalars(), tiny).y,
              Each(0.0F));
}

TEST(RunExpertRow, ANonFiniteInputMakesTheWholeRowNan) {
  TestExpert expert;
  TestExpert::fill_random(expert, 64, 32, true, 9);
  std::vector<float> x = random_row(64, 10);
  x[40] = std::numeric_limits<float>::infinity();
  for (const ActivationMode mode :
       {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    for (const float value : run(expert, kSwiglu, mode, expert.scalars(), x).y)
      EXPECT_TRUE(std::isnan(value));
  }
}

TEST(RunExpertRow, AZeroBlockScaleMakesItsBlockZero) {
  TestExpert expert;
  expert.view.up = expert.constant_matrix(16, 32, 7, 0);
  expert.view.down = expert.constant_matrix(32, 16, 7, 0x7E);
  EXPECT_THAT(run(expert, kRelu2, ActivationMode::kW4a16, expert.scalars(), exact_row(32)).y,
              Each(0.0F));
}

TEST(RunExpertRow, OddHiddenSizesMatchTheOracle) {
  TestExpert expert;
  TestExpert::fill_random(expert, 2880, 16, true, 11);
  const std::vector<float> x = random_row(2880, 12);
  const ExpertRun result = run(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x);
  EXPECT_LE(rel_l2(result.y, oracle(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x)),
            2e-6);
}

TEST(RunExpertRow, W4a4Gemm1EqualsTheExactIntegerSum) {
  TestExpert expert;
  TestExpert::fill_random(expert, 256, 16, false, 13);
  const ExpertScalars scalars = expert.scalars(4.0F / 2688, 1.0F);
  const std::vector<float> x = random_row(256, 14);
  const ExpertRun result = run(expert, kRelu2, ActivationMode::kW4a4, scalars, x);
  std::vector<std::uint8_t> codes(128), block_scale(16);
  quantize_activations(x.data(), 1, 256, scalars.s1, codes.data(), block_scale.data());
  for (std::size_t row = 0; row < 16; ++row) {
    const std::uint8_t* w_codes = &expert.view.up.codes[row * 128];
    const std::uint8_t* w_scale = &expert.view.up.block_scale[row * 16];
    const auto units = exact_dot_units(codes.data(), block_scale.data(), w_codes, w_scale, 256);
    const auto sum = static_cast<float>(static_cast<double>(units) * kExactDotUnit);
    const float u = std::max(sum * (scalars.up_global_scale / (1.0F / scalars.s1)), 0.0F);
    EXPECT_EQ(result.h[row], u * u);
  }
}

TEST(RunExpertRowQuantized, EqualsTheUnquantisedCall) {
  TestExpert expert;
  TestExpert::fill_random(expert, 96, 48, true, 15);
  const std::vector<float> x = random_row(96, 16);
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    const ExpertScalars scalars = expert.scalars(.002F, .01F);
    const float s = mode == ActivationMode::kW4a4 ? scalars.s1 : dynamic_row_scale(x.data(), 96);
    std::vector<std::uint8_t> codes(48), block_scale(6);
    quantize_activations(x.data(), 1, 96, s, codes.data(), block_scale.data());
    std::vector<float> y(96);
    run_expert_row_quantized(expert.view, kSwiglu, mode, scalars, codes.data(), block_scale.data(),
                             s, y.data());
    EXPECT_EQ(y, run(expert, kSwiglu, mode, scalars, x).y);
  }
}

// The same expert as dense bf16: e2m1 * e4m3 is exact there, so only the global scale moves.
TEST(RunExpertRow, Bf16ExpertsComputeTheSameAsTheirNvfp4Twin) {
  TestExpert expert;
  TestExpert::fill_random(expert, 64, 32, true, 17);
  TestExpert dense;
  const auto widen = [&dense](const CanonicalMatrix& src) {
    CanonicalMatrix matrix = src;
    std::vector<std::uint8_t>& bytes = dense.keep(src.rows * src.cols * 2, 0);
    std::vector<float> row(static_cast<std::size_t>(src.cols));
    for (std::int64_t r = 0; r < src.rows; ++r) {
      decode_row(src, r, row.data());
      narrow_from_f32(DType::kBf16, row.data(), src.cols,
                      &bytes[static_cast<std::size_t>(r * src.cols * 2)]);
    }
    matrix.format = WeightFormat::kBf16;
    matrix.codes = bytes;
    return matrix;
  };
  dense.view = {widen(expert.view.gate), widen(expert.view.up), widen(expert.view.down)};
  const std::vector<float> x = random_row(64, 18);
  EXPECT_EQ(run(dense, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x).y,
            run(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x).y);
}

TEST(RunExpertRow, Fp8ExpertsApplyTheirBlockScales) {
  TestExpert expert;
  const std::vector<float> scale = {0.5F, 2.0F};  // columns 0..15 and 16..31
  const auto fp8 = [&](std::int64_t rows, std::int64_t cols) {
    CanonicalMatrix matrix;
    matrix.format = WeightFormat::kFp8;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.codes = expert.keep(rows * cols, 0x38);
    matrix.scale = std::span<const float>(scale).first(static_cast<std::size_t>(cols / 16));
    matrix.scale_block_rows = rows;
    matrix.scale_block_cols = 16;
    return matrix;
  };
  expert.view.up = fp8(16, 32);
  expert.view.down = fp8(32, 16);
  std::vector<float> x(32, 1.0F);
  const ExpertRun result = run(expert, kRelu2, ActivationMode::kW4a16, {}, x);
  EXPECT_THAT(result.h, Each(1600.0F));  // (16 * .5 + 16 * 2)^2
  EXPECT_THAT(result.y, Each(1600.0F * 8.0F));
}

TEST(OracleExpertRow, Bf16HRoundsHBeforeGemm2) {
  TestExpert expert;
  TestExpert::fill_random(expert, 128, 64, true, 19);
  const std::vector<float> x = random_row(128, 20);
  const std::vector<double> plain =
      oracle(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x);
  const std::vector<double> rounded =
      oracle(expert, kSwiglu, ActivationMode::kW4a16, expert.scalars(), x, true);
  const std::vector<float> as_float(rounded.begin(), rounded.end());
  const double error = rel_l2(as_float, plain);
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 0x1p-9);
}

TEST(ExactDot, CountsInUnitsOfTwoToMinus20) {
  const std::vector<std::uint8_t> codes = {0x21, 0, 0, 0, 0, 0, 0, 0};  // .5, 1
  const std::uint8_t smallest = 0x01;                                   // 2^-9
  EXPECT_EQ(exact_dot_units(codes.data(), &smallest, codes.data(), &smallest, 16), 1 + 4);
  const std::vector<std::uint8_t> sixes(8, 0x7F);  // low nibble -6, high nibble 6
  const std::uint8_t largest = 0x7E;
  EXPECT_EQ(exact_dot_units(sixes.data(), &largest, sixes.data(), &largest, 16),
            16LL * 2688 * 2688 << 20);
}

TEST(Fp32SumsAreExact, HoldsUntilTheSumOutgrowsTheGrid) {
  std::vector<std::uint8_t> codes(16, 0x77);
  std::vector<std::uint8_t> near = {0x38, 0x40};
  EXPECT_TRUE(fp32_sums_are_exact(codes.data(), near.data(), codes.data(), near.data(), 32));
  std::vector<std::uint8_t> far = {0x01, 0x7E};
  EXPECT_FALSE(fp32_sums_are_exact(codes.data(), far.data(), codes.data(), far.data(), 32));
  far[0] = 0;  // a zero block takes no part
  EXPECT_TRUE(fp32_sums_are_exact(codes.data(), far.data(), codes.data(), far.data(), 32));
}

TEST(Bounds, FollowTheirFormulas) {
  EXPECT_EQ(fp32_gemm_bound(2.0, 100), 200.0 * 0x1p-24);
  EXPECT_EQ(tensor_core_gemm_bound(1.0, 160, 2), 12.0 * 0x1p-22);
}

TEST(RelL2, IsTheNormOfTheErrorOverTheNormOfTheTruth) {
  const std::vector<float> got = {3.0F, 4.5F};
  const std::vector<double> want = {3.0, 4.0};
  EXPECT_DOUBLE_EQ(rel_l2(got, want), 0.1);
  EXPECT_EQ(max_abs_error(got, want), 0.5);
  const std::vector<double> zeros = {0.0, 0.0};
  EXPECT_EQ(rel_l2(std::vector<float>{0.0F, 0.0F}, zeros), 0.0);
  EXPECT_TRUE(std::isinf(rel_l2(got, zeros)));
  const std::vector<float> nan = {std::nanf(""), 0.0F};
  EXPECT_TRUE(std::isnan(rel_l2(nan, want)));
  EXPECT_TRUE(std::isnan(max_abs_error(nan, want)));
}

}  // namespace
}  // namespace halfbyte::reference
