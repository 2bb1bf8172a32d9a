// SPDX-License-Identifier: Apache-2.0
//
// The offline weight quantiser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

struct Weights {
  std::vector<std::uint8_t> codes, block_scale;
  std::uint8_t code(std::int64_t i) const { return e2m1_code_at(codes.data(), i); }
};

Weights quantize(const std::vector<float>& w, std::int64_t cols, float global_scale) {
  Weights out;
  out.codes.resize(w.size() / 2, 0xAA);
  out.block_scale.resize(w.size() / 16, 0xAA);
  const auto rows = static_cast<std::int64_t>(w.size()) / cols;
  const Status status = quantize_weights(w, rows, cols, global_scale, out.codes, out.block_scale);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

TEST(QuantizeWeights, TheWorkedExampleGivesItsCodes) {
  // docs/numerics.md: amax(W) = .35 in another block, amax .05 in this one.
  std::vector<float> w(32, 0.0F);
  w[0] = .05F;
  w[1] = .031F;
  w[2] = -.012F;
  w[3] = .0041F;
  w[16] = .35F;
  const float global_scale = weight_global_scale(w);
  EXPECT_NEAR(global_scale, 1.302083e-4F, 1e-10F);
  const Weights q = quantize(w, 32, global_scale);
  EXPECT_EQ(q.block_scale[0], 0x68);
  EXPECT_EQ(q.code(0), 7);
  EXPECT_EQ(q.code(1), 6);
  EXPECT_EQ(q.code(2), 0xB);
  EXPECT_EQ(q.code(3), 1);
  EXPECT_EQ(q.block_scale[1], 0x7E);
  EXPECT_EQ(q.code(16), 7);
}

TEST(QuantizeWeights, AnAllZeroMatrixHasGlobalScaleOneAndZeroBytes) {
  const std::vector<float> w(64, 0.0F);
  EXPECT_EQ(weight_global_scale(w), 1.0F);
  const Weights q = quantize(w, 64, 1.0F);
  EXPECT_THAT(q.codes, Each(0));
  EXPECT_THAT(q.block_scale, Each(0));
}

TEST(QuantizeWeights, ANonZeroBlockNeverGetsScaleZero) {
  std::vector<float> w(32, 0.0F);
  w[0] = 448.0F;
  w[16] = 1e-12F;
  const Weights q = quantize(w, 32, weight_global_scale(w));
  EXPECT_EQ(q.block_scale[1], 0x01);
}

TEST(QuantizeWeights, QuantisedWeightsSurviveARoundTripUnchanged) {
  // Blocks that all reach code 6, one of them with scale 448: then scales and codes are all
  // recovered from the values alone.
  std::mt19937 random(11);
  std::uniform_int_distribution<int> any_code(0, 15);
  std::uniform_int_distribution<int> any_scale(0x08, 0x7E);
  for (const float global_scale : {1.0F, 0x1p-9F, 1.302083e-4F, 3.7e-3F}) {
    Weights want;
    std::vector<float> w;
    for (int block = 0; block < 64; ++block) {
      const auto scale = static_cast<std::uint8_t>(block == 5 ? 0x7E : any_scale(random));
      want.block_scale.push_back(scale);
      for (int i = 0; i < 16; i += 2) {
        const int low = i == 0 ? 7 : any_code(random);
        const int high = any_code(random);
        want.codes.push_back(static_cast<std::uint8_t>(low | (high << 4)));
        for (const int code : {low, high})
          w.push_back(e2m1_to_f32(static_cast<std::uint8_t>(code)) * e4m3_to_f32(scale) *
                      global_scale);
      }
    }
    const float recovered = weight_global_scale(w);
    // RN(RN(2688 gs) / 2688) may miss gs by its last bit; codes and scales do not.
    EXPECT_NEAR(recovered, global_scale, global_scale * 0x1p-23F);
    const Weights q = quantize(w, 256, recovered);
    EXPECT_EQ(q.codes, want.codes);
    EXPECT_EQ(q.block_scale, want.block_scale);
  }
}

TEST(QuantizeWeights, NonFiniteWeightsAreRefusedWithTheirPlace) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> w(3 * 32, 1.0F);
    w[2 * 32 + 17] = bad;
    std::vector<std::uint8_t> codes(48), scales(6);
    const Status status = quantize_weights(w, 3, 32, 1.0F, codes, scales);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("row 2, column 17"));
  }
}

TEST(QuantizeWeights, BadShapesAndScalesAreRefused) {
  std::vector<float> w(32, 1.0F);
  std::vector<std::uint8_t> codes(16), scales(2);
  EXPECT_EQ(quantize_weights(w, 4, 8, 1.0F, codes, scales).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(quantize_weights(w, 2, 32, 1.0F, codes, scales).code(), StatusCode::kInvalidArgument);
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(quantize_weights(w, 1, 32, bad, codes, scales).code(), StatusCode::kInvalidArgument);
  }
}

TEST(QuantizeWeights, ErrorsStayWithinHalfTheWidestGap) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> w(64 * 64);
  for (float& value : w)
    value = normal(random);
  const float global_scale = weight_global_scale(w);
  const Weights q = quantize(w, 64, global_scale);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float step = e4m3_to_f32(q.block_scale[i / 16]) * global_scale;
    const float value = e2m1_to_f32(q.code(static_cast<std::int64_t>(i))) * step;
    ASSERT_LE(std::fabs(value - w[i]), step * 1.0001F);
  }
}

TEST(QuantizeWeights, SubnormalWeightsHaveAUsableGlobalScale) {
  std::vector<float> w(16, 0.0F);
  w[3] = std::numeric_limits<float>::denorm_min();
  const float global_scale = weight_global_scale(w);
  EXPECT_GT(global_scale, 0.0F);
  const Weights q = quantize(w, 16, global_scale);
  EXPECT_EQ(q.code(0), 0);
  EXPECT_NE(q.block_scale[0], 0);
}

TEST(SharedGateUpGlobalScale, IsTheScaleOfTheLargerHalf) {
  const std::vector<float> gate(16, .5F), up(16, -3.0F), zeros(16, 0.0F);
  EXPECT_EQ(shared_gate_up_global_scale(gate, up), 3.0F / 2688.0F);
  EXPECT_EQ(shared_gate_up_global_scale(gate, zeros), .5F / 2688.0F);
  EXPECT_EQ(shared_gate_up_global_scale(zeros, zeros), 1.0F);
}

}  // namespace
}  // namespace halfbyte
