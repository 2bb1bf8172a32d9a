// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/bf16.h"

namespace halfbyte::reference {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

CanonicalMatrix f32_matrix(const std::vector<float>& values, std::int64_t rows) {
  CanonicalMatrix matrix;
  matrix.format = WeightFormat::kF32;
  matrix.rows = rows;
  matrix.cols = static_cast<std::int64_t>(values.size()) / rows;
  matrix.codes = {reinterpret_cast<const std::uint8_t*>(values.data()),
                  values.size() * sizeof(float)};
  return matrix;
}

TEST(Linear, MultipliesByTheTransposedWeightAndAddsTheBias) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};  // [3, 2]
  const std::vector<float> x = {1, 10, 2, 20};           // [2, 2]
  const std::vector<float> bias = {100, 200, 300};
  std::vector<float> y(6);
  linear(f32_matrix(weight, 3), bias.data(), x.data(), 2, y.data());
  EXPECT_THAT(y, ElementsAre(121, 243, 365, 142, 286, 430));
  linear(f32_matrix(weight, 3), nullptr, x.data(), 2, y.data());
  EXPECT_THAT(y, ElementsAre(21, 43, 65, 42, 86, 130));
}

TEST(Linear, RoundsASumOnce) {
  // In fp32 the ones would vanish beside 2^25; the exact sum is 4.
  const std::vector<float> weight = {0x1p25F, 1, 1, 1, 1, -0x1p25F};
  const std::vector<float> x(6, 1.0F);
  float y = 0.0F;
  linear(f32_matrix(weight, 1), nullptr, x.data(), 1, &y);
  EXPECT_EQ(y, 4.0F);
}

TEST(Linear, AppliesTheGlobalScaleOfNvfp4) {
  const std::vector<std::uint8_t> codes = {0x21, 0, 0, 0, 0, 0, 0, 0};  // .5, 1
  const std::vector<std::uint8_t> block_scale = {0x40};                 // 2
  CanonicalMatrix matrix;
  matrix.rows = 1;
  matrix.cols = 16;
  matrix.codes = codes;
  matrix.block_scale = block_scale;
  matrix.global_scale = 0.25F;
  std::vector<float> x(16, 0.0F);
  x[0] = 1.0F;
  x[1] = 10.0F;
  float y = 0.0F;
  linear(matrix, nullptr, x.data(), 1, &y);
  EXPECT_EQ(y, (0.5F + 10.0F) * 2.0F * 0.25F);
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const std::vector<float> x = {3, 4, 0, 0, -6, 8, 0, 0};
  const std::vector<float> weight = {1, 2, 1, 1};
  std::vector<float> y(8);
  rms_norm(x.data(), weight.data(), 0.0F, 2, 4, false, y.data());
  EXPECT_FLOAT_EQ(y[0], 3.0F / 2.5F);
  EXPECT_FLOAT_EQ(y[1], 2.0F * 4.0F / 2.5F);
  EXPECT_FLOAT_EQ(y[4], -6.0F / 5.0F);
}

TEST(RmsNorm, EpsilonKeepsAZeroRowZero) {
  std::vector<float> x(8, 0.0F);
  const std::vector<float> weight(8, 1.0F);
  rms_norm(x.data(), weight.data(), 1e-6F, 1, 8, false, x.data());  // in place
  EXPECT_THAT(x, Each(0.0F));
}

TEST(RmsNorm, RoundsTheNormedValueAndTheResultToBf16) {
  const std::vector<float> x = {1.0F, 0.3F};
  const std::vector<float> weight = {1.7F, 1.3F};
  std::vector<float> exact(2), rounded(2);
  rms_norm(x.data(), weight.data(), 1e-6F, 1, 2, false, exact.data());
  rms_norm(x.data(), weight.data(), 1e-6F, 1, 2, true, rounded.data());
  for (std::size_t i = 0; i < 2; ++i) {
    const float normed = round_to_bf16(exact[i] / weight[i]);
    EXPECT_EQ(rounded[i], round_to_bf16(weight[i] * normed));
  }
}

TEST(Rope, RotatesHalvesOrNeighbours) {
  const std::vector<float> cos = {0.0F, -1.0F};  // 90 and 180 degrees
  const std::vector<float> sin = {1.0F, 0.0F};
  std::vector<float> halves = {1, 2, 3, 4, 9};
  rope(halves.data(), cos.data(), sin.data(), 2, false);
  EXPECT_THAT(halves, ElementsAre(-3, -2, 1, -4, 9));
  std::vector<float> pairs = {1, 2, 3, 4, 9};
  rope(pairs.data(), cos.data(), sin.data(), 2, true);
  EXPECT_THAT(pairs, ElementsAre(-2, 1, -3, -4, 9));
}

TEST(Attend, WeighsValuesBySoftmaxOfScaledScores) {
  const std::vector<float> q = {2.0F};
  const float k0 = 0.0F, k1 = 1.0F;
  const std::vector<float> v0 = {1, 0, 5}, v1 = {0, 1, 5};
  const float* keys[] = {&k0, &k1};
  const float* values[] = {v0.data(), v1.data()};
  std::vector<float> out(3);
  attend(q.data(), keys, values, 2, 1, 3, 0.5F, out.data());
  const double p = 1.0 / (1.0 + std::exp(-1.0));
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(1.0 - p));
  EXPECT_FLOAT_EQ(out[1], static_cast<float>(p));
  EXPECT_FLOAT_EQ(out[2], 5.0F);
}

TEST(Attend, LargeScoresDoNotOverflow) {
  const float q = 1e4F, k0 = 1e4F, k1 = -1e4F, v0 = 1.0F, v1 = 2.0F;
  const float* keys[] = {&k0, &k1};
  const float* values[] = {&v0, &v1};
  float out = 0.0F;
  attend(&q, keys, values, 2, 1, 1, 1.0F, &out);
  EXPECT_EQ(out, 1.0F);
}

TEST(Attend, WithoutKeysTheOutputIsZero) {
  const float q = 1.0F;
  float out = 9.0F;
  attend(&q, nullptr, nullptr, 0, 1, 1, 1.0F, &out);
  EXPECT_EQ(out, 0.0F);
}

}  // namespace
}  // namespace halfbyte::reference
