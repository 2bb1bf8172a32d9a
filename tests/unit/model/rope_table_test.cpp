// SPDX-License-Identifier: Apache-2.0
//
// Expected values: the formulas of YaRN evaluated by hand or in fp64 with another tool.
#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace halfbyte {
namespace {

RopeConfig yarn(double factor, std::int64_t original) {
  RopeConfig config;
  config.type = RopeType::kYarn;
  config.factor = factor;
  config.original_max_position_embeddings = original;
  return config;
}

TEST(RopeTable, DefaultFrequenciesFallFromOne) {
  const RopeTable table = make_rope_table(RopeConfig{}, 8, false);
  ASSERT_EQ(table.num_pairs(), 4);
  EXPECT_FLOAT_EQ(table.inv_freq[0], 1.0F);
  EXPECT_FLOAT_EQ(table.inv_freq[1], 0.1F);  // 10000^(-2/8)
  EXPECT_FLOAT_EQ(table.inv_freq[3], 0.001F);
  EXPECT_EQ(table.attention_factor, 1.0F);
}

TEST(RopeTable, LinearDividesEveryFrequency) {
  RopeConfig config;
  config.type = RopeType::kLinear;
  config.factor = 4.0;
  EXPECT_FLOAT_EQ(make_rope_table(config, 8, false).inv_freq[1], 0.025F);
}

TEST(RopeTable, PartialRotaryRotatesTheFirstPart) {
  RopeConfig config;
  config.partial_rotary_factor = 0.5;
  const RopeTable table = make_rope_table(config, 128, false);
  EXPECT_EQ(table.num_pairs(), 32);
  EXPECT_FLOAT_EQ(table.inv_freq[16], 0.01F);  // of width 64: 10000^(-32/64)
}

// DeepSeek-V3: width 64, base 1e4, factor 40, original 4096. D(32) = 10.47, D(1) = 22.51, so pairs
// up to 10 keep their frequency and pairs from 23 on are divided by 40.
TEST(RopeTable, YarnKeepsFastPairsAndStretchesSlowOnes) {
  const RopeTable table = make_rope_table(yarn(40.0, 4096), 64, true);
  const auto plain = [](double pair) { return std::pow(10000.0, -pair / 32.0); };
  EXPECT_FLOAT_EQ(table.inv_freq[10], static_cast<float>(plain(10)));
  EXPECT_FLOAT_EQ(table.inv_freq[23], static_cast<float>(plain(23) / 40.0));
  const double ramp = 1.0 / 13.0;
  EXPECT_FLOAT_EQ(table.inv_freq[11], static_cast<float>(plain(11) * (ramp / 40.0 + 1.0 - ramp)));
}

TEST(RopeTable, YarnAttentionFactorFollowsTheConfig) {
  RopeConfig config = yarn(40.0, 4096);
  EXPECT_FLOAT_EQ(make_rope_table(config, 64, true).attention_factor, 1.3688879F);  // m(1)
  config.mscale = 1.0;
  config.mscale_all_dim = 1.0;
  EXPECT_FLOAT_EQ(make_rope_table(config, 64, true).attention_factor, 1.0F);
  config.mscale = 0.0;  // zero counts as not given
  EXPECT_FLOAT_EQ(make_rope_table(config, 64, true).attention_factor, 1.3688879F);
  config.attention_factor = 0.5;
  EXPECT_FLOAT_EQ(make_rope_table(config, 64, true).attention_factor, 0.5F);
}

// Kimi-K2: beta_fast = beta_slow = 1; both ends can be one number, and the ramp must stay finite.
TEST(RopeTable, YarnWithEqualBetasIsAStep) {
  RopeConfig config = yarn(32.0, 4096);
  config.beta_fast = 1.0;
  config.truncate = false;
  const RopeTable table = make_rope_table(config, 64, true);
  for (std::size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 32.0);
    EXPECT_FLOAT_EQ(table.inv_freq[i], static_cast<float>(i <= 22 ? plain : plain / 32.0)) << i;
  }
}

TEST(RopeTable, ZeroBetasMeanTheDefaults) {
  RopeConfig config = yarn(40.0, 4096);
  const RopeTable want = make_rope_table(config, 64, true);
  config.beta_fast = 0.0;
  config.beta_slow = 0.0;
  EXPECT_EQ(make_rope_table(config, 64, true).inv_freq, want.inv_freq);
}

TEST(RopeTable, AnglesAreOneFp32Product) {
  RopeTable table;
  table.inv_freq = {0.1F};
  table.attention_factor = 2.0F;
  const std::vector<std::int64_t> positions = {0, 12345};
  float cos[2];
  float sin[2];
  fill_rope(table, positions, cos, sin);
  EXPECT_EQ(cos[0], 2.0F);
  EXPECT_EQ(sin[0], 0.0F);
  EXPECT_FLOAT_EQ(cos[1],
                  2.0F * static_cast<float>(std::cos(static_cast<double>(12345.0F * 0.1F))));
}

}  // namespace
}  // namespace halfbyte
