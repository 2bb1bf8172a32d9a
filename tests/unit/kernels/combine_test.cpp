// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/combine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace halfbyte::reference {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::int64_t kHidden = 5;

struct Token {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::vector<float>> rows;
};

Token random_token(std::int64_t num_experts, std::size_t top_k, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(num_experts) - 1);
  std::normal_distribution<float> normal;
  Token token;
  for (std::size_t slot = 0; slot < top_k; ++slot) {
    token.ids.push_back(any(random));
    token.weights.push_back(normal(random));
    std::vector<float>& row = token.rows.emplace_back(kHidden);
    for (float& value : row)
      value = normal(random);
  }
  return token;
}

// The token's sum over experts [first, last), or empty.
std::vector<float> combine(const Token& token,
                           std::int64_t num_experts,
                           std::int64_t first,
                           std::int64_t last) {
  std::vector<const float*> rows;
  for (std::size_t slot = 0; slot < token.ids.size(); ++slot) {
    const bool local = token.ids[slot] >= first && token.ids[slot] < last;
    rows.push_back(local ? token.rows[slot].data() : nullptr);
  }
  std::vector<float> scratch(kNumCombineGroups * kHidden, std::nanf(""));
  std::vector<float> y(kHidden, 123.0F);
  const bool any =
      combine_token(token.ids, token.weights, rows, num_experts, kHidden, scratch.data(), y.data());
  return any ? y : std::vector<float>();
}

TEST(ExpertOwner, SplitsUnevenlyWithTheFirstRanksHoldingOneMore) {
  // E = 30 over 8: 4 4 4 4 4 4 3 3.
  std::vector<std::int64_t> firsts;
  for (std::int64_t rank = 0; rank <= 8; ++rank)
    firsts.push_back(first_expert_of(rank, 30, 8));
  EXPECT_THAT(firsts, ElementsAre(0, 4, 8, 12, 16, 20, 24, 27, 30));
  EXPECT_EQ(expert_owner(24, 30, 8), 6);
  EXPECT_EQ(expert_owner(27, 30, 8), 7);
}

TEST(ExpertOwner, AgreesWithTheFirstExpertsForEverySplit) {
  for (const std::int64_t experts : {1, 4, 10, 30, 64, 128, 160}) {
    for (const std::int64_t ranks : {1, 2, 4, 6, 8, 16, 48}) {
      for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t owner = expert_owner(e, experts, ranks);
        ASSERT_GE(e, first_expert_of(owner, experts, ranks));
        ASSERT_LT(e, first_expert_of(owner + 1, experts, ranks));
      }
    }
  }
}

TEST(CombineToken, AddsLeavesThenNeighboursThenPairsOfPairs) {
  // 16 experts: one a group. ((w0 y0 + w1 y1) + w3 y3) + w9 y9, each product rounded first.
  const Token token = {
      {9, 1, 3, 0},
      {.3F, .7F, .11F, .13F},
      {{1.1F, 0, 0, 0, 0}, {2.3F, 0, 0, 0, 0}, {.77F, 0, 0, 0, 0}, {5.9F, 0, 0, 0, 0}}};
  const float left = (.13F * 5.9F + .7F * 2.3F) + .11F * .77F;
  EXPECT_EQ(combine(token, 16, 0, 16)[0], left + .3F * 1.1F);
}

TEST(CombineToken, ALeafAccumulatesItsSlotsWithFma) {
  // 32 experts: two a group, so 4 and 5 share a leaf.
  const Token token = {{5, 4}, {.3F, .7F}, {{1.1F, 0, 0, 0, 0}, {2.3F, 0, 0, 0, 0}}};
  EXPECT_EQ(combine(token, 32, 0, 32)[0], std::fma(.7F, 2.3F, .3F * 1.1F));
}

TEST(CombineToken, WeightsKeepTheirFp32Bits) {
  // (.5 + 2^-11) * 1024 - (.5 - 2^-11) * 1024 = 1; bf16 weights would give 0.
  const Token token = {
      {2, 11},
      {.5F + 0x1p-11F, .5F - 0x1p-11F},
      {std::vector<float>(kHidden, 1024.0F), std::vector<float>(kHidden, -1024.0F)}};
  EXPECT_THAT(combine(token, 16, 0, 16), Each(1.0F));
}

TEST(CombineToken, DuplicateIdsAddTheirWeights) {
  const Token token = {{5, 9, 9, 3},
                       {.5F, .25F, .125F, 0.0F},
                       std::vector<std::vector<float>>(4, std::vector<float>(kHidden, 1.0F))};
  EXPECT_THAT(combine(token, 16, 0, 16), Each(.875F));
}

TEST(CombineToken, WithoutARouteNothingIsWritten) {
  const Token token = random_token(16, 4, 1);
  EXPECT_TRUE(combine(token, 16, 16, 16).empty());
}

TEST(CombineToken, AnAbsentSideIsSkippedAndNotAddedAsZero) {
  // -0 + 0 would be +0.
  const Token token = {{3}, {1.0F}, {{-0.0F, -0.0F, -0.0F, -0.0F, -0.0F}}};
  EXPECT_TRUE(std::signbit(combine(token, 16, 0, 16)[0]));
}

TEST(JoinPartials, EveryAlignedPartitionGivesTheSameBits) {
  for (const std::int64_t experts : {16, 64, 128, 160}) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      const Token token = random_token(experts, 8, seed);
      const std::vector<float> want = combine(token, experts, 0, experts);
      for (const std::int64_t ranks : {1, 2, 4, 8, 16}) {
        std::vector<std::vector<float>> partials;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          partials.push_back(combine(token, experts, first_expert_of(rank, experts, ranks),
                                     first_expert_of(rank + 1, experts, ranks)));
        std::vector<const float*> views;
        for (const std::vector<float>& partial : partials)
          views.push_back(partial.empty() ? nullptr : partial.data());
        std::vector<float> scratch(static_cast<std::size_t>(ranks * kHidden));
        std::vector<float> y(kHidden);
        ASSERT_TRUE(join_partials(views, kHidden, scratch.data(), y.data()));
        ASSERT_EQ(y, want) << ranks;
      }
    }
  }
}

TEST(JoinPartials, AllAbsentWritesNothing) {
  const std::array<const float*, 4> partials = {};
  std::vector<float> scratch(4 * kHidden), y(kHidden, 9.0F);
  EXPECT_FALSE(join_partials(partials, kHidden, scratch.data(), y.data()));
  EXPECT_THAT(y, Each(9.0F));
}

}  // namespace
}  // namespace halfbyte::reference
