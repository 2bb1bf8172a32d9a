// SPDX-License-Identifier: Apache-2.0
//
// B09: input scales of all experts were used without regard to the rank. Here the scale is one
// scalar over all experts (nvfp4-moe 4.2), so every rank quantises alike, and global scales are
// sliced from the rank's own offset.
#include <gtest/gtest.h>

#include <cmath>

#include "bugs/moe_ranks.h"
#include "moe/scales.h"

namespace halfbyte {
namespace {

using namespace test;

// E = 8, ep = 2, input_scale[e] = 2^-e. Equal bits on one rank and on two with an fp32 wire (9.5).
TEST(B09, TwoRanksGiveWhatOneGives) {
  const MoeSpec spec = small_moe_spec();
  const auto experts = random_experts(spec, 1);
  ExpertInputScales scales = {{{8}, {}}, {{8}, {}}};
  for (int e = 0; e < 8; ++e) {
    scales.gate_up.values.push_back(std::ldexp(1.0F, -e));
    scales.down.values.push_back(std::ldexp(1.0F, -e));
  }
  MoeOptions options = reference_moe_options(8, ActivationMode::kW4a4);
  std::vector<RankStep> one = {walking_step(spec, 8, 2)};
  run_ranks(spec, options, scales, experts, {}, one);
  ASSERT_EQ(one[0].status, "ok");

  options.tp_size = options.ep_size = 2;
  std::vector<RankStep> two = {walking_step(spec, 8, 2), walking_step(spec, 8, 2)};
  run_ranks(spec, options, scales, experts, {}, two);
  for (const RankStep& rank : two) {
    ASSERT_EQ(rank.status, "ok");
    EXPECT_EQ(rank.y, one[0].y);
  }
}

// The silent form: slicing global scales from 0 on every rank.
TEST(B09, GlobalScalesAreSlicedFromTheRanksOffset) {
  const ScaleTensor all = {{8}, {1, 2, 3, 4, 5, 6, 7, 8}};
  auto columns = resolve_global_scale(all, "down.global_scale", 1, 8, {4, 4, 0, 32});
  ASSERT_TRUE(columns.ok());
  EXPECT_EQ(columns->front(), (std::vector<float>{5, 6, 7, 8}));
}

}  // namespace
}  // namespace halfbyte
