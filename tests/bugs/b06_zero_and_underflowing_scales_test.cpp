// SPDX-License-Identifier: Apache-2.0
//
// Block scales that underflow: a non-zero group keeps the smallest scale, a zero group stays zero,
// and neither ever meets an infinity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "kernels/reference/expert.h"
#include "unit/kernels/test_expert.h"

namespace halfbyte::reference {
namespace {

using test::TestExpert;
using ::testing::Each;

TEST(B06ZeroAndUnderflowingScales, AWeightGroupOf0Point005KeepsTheSmallestScale) {
  std::vector<float> w(16, 0.0F);
  w[0] = .005F;
  w[1] = -.002F;
  w[2] = .0004F;
  std::vector<std::uint8_t> codes(8), block_scale(1);
  ASSERT_TRUE(quantize_weights(w, 1, 16, 1.0F, codes, block_scale).ok());
  EXPECT_EQ(block_scale[0], 0x01);
  std::vector<float> back(16);
  decode_nvfp4_row(codes.data(), block_scale.data(), 16, back.data());
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_LE(std::fabs(back[i] - w[i]), 0x1p-10F);
}

std::vector<float> run(const TestExpert& expert, ActivationMode mode, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  run_expert_row(expert.view, {}, mode, expert.scalars(), x.data(), y.data());
  return y;
}

TEST(B06ZeroAndUnderflowingScales, AZeroTokenGivesZeroAndALoneGroupStaysFinite) {
  TestExpert expert;
  TestExpert::fill_random(expert, 256, 64, true, 1);
  const std::vector<float> zeros(256, 0.0F);
  std::vector<float> lone(256, 0.0F);
  lone[80] = 6.0F;
  lone[81] = 2.0F;
  for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                    ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
    EXPECT_THAT(run(expert, mode, zeros), Each(0.0F));
    float largest = 0.0F;
    for (const float value : run(expert, mode, lone)) {
      EXPECT_TRUE(std::isfinite(value));
      largest = std::max(largest, std::fabs(value));
    }
    EXPECT_GT(largest, 0.0F);
  }
}

}  // namespace
}  // namespace halfbyte::reference
