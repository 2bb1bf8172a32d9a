// SPDX-License-Identifier: Apache-2.0
//
// A calibrated activation scale must be used: x and s both times 8 give the same payload, a GEMM1
// output 8 times as large, and 64 times the intermediate of a squared relu.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/reference/expert.h"
#include "unit/kernels/test_expert.h"

namespace halfbyte::reference {
namespace {

using test::random_row;
using test::TestExpert;

TEST(B08InputScaleIsUsed, Relu2GrowsBy64WhenXAndItsScaleGrowBy8) {
  constexpr ActivationSpec kRelu2 = {.function = ActivationFunction::kRelu2};
  TestExpert expert;
  TestExpert::fill_random(expert, 128, 64, false, 1);
  const std::vector<float> x = random_row(128, 2);
  std::vector<float> x8 = x;
  for (float& value : x8)
    value *= 8.0F;
  std::vector<float> h(64), h8(64), y(128), y8(128);
  std::vector<std::uint8_t> codes(32), codes8(32);
  run_expert_row(expert.view, kRelu2, ActivationMode::kW4a4, expert.scalars(.001F, .004F), x.data(),
                 y.data(), {h.data(), codes.data(), nullptr, nullptr});
  run_expert_row(expert.view, kRelu2, ActivationMode::kW4a4, expert.scalars(.008F, .256F),
                 x8.data(), y8.data(), {h8.data(), codes8.data(), nullptr, nullptr});
  EXPECT_EQ(codes, codes8);
  for (std::size_t i = 0; i < h.size(); ++i)
    EXPECT_EQ(h8[i], h[i] * 64.0F);
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y8[i], y[i] * 64.0F);
}

}  // namespace
}  // namespace halfbyte::reference
