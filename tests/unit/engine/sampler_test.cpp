// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "engine/random.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams with(float temperature, int top_k, float top_p, std::uint64_t seed = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.seed = seed;
  return params;
}

std::int32_t sample(const std::vector<float>& logits,
                    const SamplingParams& params,
                    std::int64_t position = 0) {
  Sampler sampler;
  auto token = sampler.sample(logits, params, position);
  EXPECT_TRUE(token.ok()) << token.status().to_string();
  return token.ok() ? *token : -1;
}

// How often each id is drawn over `count` positions.
std::map<std::int32_t, int> draws(const std::vector<float>& logits,
                                  const SamplingParams& params,
                                  int count) {
  Sampler sampler;
  std::map<std::int32_t, int> counts;
  for (int position = 0; position < count; ++position) {
    ++counts[sampler.sample(logits, params, position).value()];
  }
  return counts;
}

// Known answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST(Random, PhiloxGivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// 53 bits of 0x6627e8d5e169c58d, by hand: 0x6627e8d5e169c58d >> 11 is 0xcc4fd1abc2d38.
TEST(Random, UniformIsTheHighestBitsOfTheFirstWords) {
  EXPECT_EQ(uniform(0, 0), static_cast<double>(0xcc4fd1abc2d38ULL) * 0x1.0p-53);
  EXPECT_NE(uniform(0, 1), uniform(0, 0));
  EXPECT_NE(uniform(1, 0), uniform(0, 0));
  EXPECT_NE(uniform(std::uint64_t{1} << 32, 0), uniform(1, 0));
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  EXPECT_EQ(sample({1, 3, 2}, with(0, 0, 1)), 1);
  EXPECT_EQ(sample({1, 3, 3, 3}, with(0, 0, 1)), 1);
  EXPECT_EQ(sample({-5, -5}, with(0, 0, 1)), 0);
  EXPECT_EQ(sample({-kInf, -7, -kInf}, with(0, 0, 1)), 1);
}

TEST(Sampler, TopKOfOneIsGreedy) {
  for (int position = 0; position < 50; ++position) {
    EXPECT_EQ(sample({1, 2, 2, 1}, with(5, 1, 1), position), 1);
  }
}

TEST(Sampler, TopKKeepsTheLowestIdsOfEquals) {
  std::set<std::int32_t> seen;
  for (const auto& [id, count] : draws({0, 1, 1, 1, 2}, with(10, 3, 1), 500)) {
    seen.insert(id);
  }
  EXPECT_EQ(seen, (std::set<std::int32_t>{1, 2, 4}));
}

TEST(Sampler, TopKAboveTheVocabularyKeepsEverything) {
  EXPECT_EQ(draws({0, 0, 0}, with(1, 99, 1), 300).size(), 3U);
  EXPECT_EQ(draws({0, 0, 0}, with(1, -1, 1), 300).size(), 3U);
}

// Weights 1/2, 1/4, 1/8, 1/8: 0.5 is reached by the first alone, 0.51 needs the second, 0.76 the
// third.
TEST(Sampler, TopPKeepsTheShortestPrefixThatReachesIt) {
  const float ln2 = std::log(2.0F);
  const std::vector<float> logits = {-2 * ln2, -ln2, -3 * ln2, -3 * ln2};
  EXPECT_EQ(draws(logits, with(1, 0, 0.49F), 200).size(), 1U);
  EXPECT_EQ(draws(logits, with(1, 0, 0.51F), 200).size(), 2U);
  EXPECT_EQ(draws(logits, with(1, 0, 0.76F), 400).size(), 3U);
  EXPECT_EQ(draws(logits, with(1, 0, 1.0F), 400).size(), 4U);
  EXPECT_EQ(draws(logits, with(1, 0, 1e-6F), 200).size(), 1U);
}

// Of equal weights 1/4 each, top_k 2 leaves two halves, of which top_p 0.5 is the first.
TEST(Sampler, TopPCountsWhatTopKLeft) {
  EXPECT_EQ(draws({3, 3, 3, 3}, with(1, 2, 0.5F), 200).size(), 1U);
  EXPECT_EQ(draws({3, 3, 3, 3}, with(1, 2, 0.51F), 200).size(), 2U);
}

// More ids than one ordering step holds: 1000 equal ones at top_p 0.5 are the first 500.
TEST(Sampler, TopPOfAFlatDistributionKeepsItsShareOfIds) {
  const std::vector<float> logits(1000, 1.0F);
  std::int32_t largest = 0;
  for (const auto& [id, count] : draws(logits, with(1, 0, 0.5F), 3000)) {
    largest = std::max(largest, id);
  }
  EXPECT_LT(largest, 500);
  EXPECT_GT(largest, 450);
}

// Weights 3 : 1 at temperature 1 and sqrt(3) : 1 at temperature 2. The bound is five standard
// deviations of a binomial.
TEST(Sampler, DrawsFollowTheTemperature) {
  const std::vector<float> logits = {std::log(3.0F), 0.0F};
  constexpr int kDraws = 4000;
  for (const auto& [temperature, share] : {std::pair(1.0F, 0.75), std::pair(2.0F, 0.6340)}) {
    const int first = draws(logits, with(temperature, 0, 1), kDraws)[0];
    EXPECT_NEAR(first, kDraws * share, 5 * std::sqrt(kDraws * share * (1 - share)));
  }
}

TEST(Sampler, ATinyTemperatureIsGreedy) {
  EXPECT_EQ(sample({1, 3, 2}, with(std::numeric_limits<float>::denorm_min(), 0, 1)), 1);
  EXPECT_EQ(sample({1e30F, 3e30F, 2}, with(1e-30F, 0, 0.9F)), 1);
}

TEST(Sampler, TheSameSeedAndPositionGiveTheSameToken) {
  const std::vector<float> logits(50, 0.5F);
  const auto tokens = [&](std::uint64_t seed) {
    std::vector<std::int32_t> result;
    for (int position = 0; position < 20; ++position) {
      result.push_back(sample(logits, with(1, 0, 1, seed), position));
    }
    return result;
  };
  EXPECT_EQ(tokens(7), tokens(7));
  EXPECT_NE(tokens(7), tokens(8));
}

TEST(Sampler, ATokenThatCannotBeDrawnNeverIs) {
  const auto counts = draws({-kInf, 0, -kInf, 0}, with(1, 0, 1), 300);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_FALSE(counts.contains(0));
  EXPECT_FALSE(counts.contains(2));
  EXPECT_EQ(draws({-kInf, 0, -kInf}, with(1, 3, 1), 50).size(), 1U);
}

TEST(Sampler, RefusesLogitsThatAreNoNumbersAndNamesTheFirst) {
  Sampler sampler;
  for (const float temperature : {0.0F, 1.0F}) {
    auto token = sampler.sample(std::vector<float>{0, kNan, kNan}, with(temperature, 0, 1), 0);
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(std::string(token.status().message()), HasSubstr("logit of token 1 is nan"));
    EXPECT_FALSE(sampler.sample(std::vector<float>{kNan, 1}, with(temperature, 0, 1), 0).ok());
    EXPECT_FALSE(sampler.sample(std::vector<float>{1, kInf}, with(temperature, 0, 1), 0).ok());
    EXPECT_FALSE(sampler.sample(std::vector<float>{-kInf, -kInf}, with(temperature, 0, 1), 0).ok());
    EXPECT_FALSE(sampler.sample(std::vector<float>{}, with(temperature, 0, 1), 0).ok());
  }
}

// Weights 1, 1/2, 1/4, 1/8 at temperature 1; 1, 1/4, 1/16, 1/64 at temperature 1/2.
TEST(Sampler, MinPKeepsWhatIsLikelyEnoughBesideTheLikeliest) {
  const float ln2 = std::log(2.0F);
  const std::vector<float> logits = {-2 * ln2, 0, -3 * ln2, -ln2};
  const auto num_seen = [&](SamplingParams params, float min_p) {
    params.min_p = min_p;
    return draws(logits, params, 400).size();
  };
  EXPECT_EQ(num_seen(with(1, 0, 1), 0), 4U);
  EXPECT_EQ(num_seen(with(1, 0, 1), 0.24F), 3U);
  EXPECT_EQ(num_seen(with(1, 0, 1), 0.26F), 2U);
  EXPECT_EQ(num_seen(with(0.5F, 0, 1), 0.26F), 1U) << "after the temperature";
  EXPECT_EQ(num_seen(with(1, 0, 1), 1), 1U);
  EXPECT_EQ(num_seen(with(1, 3, 1), 0.1F), 3U) << "top_k is stricter";
  EXPECT_EQ(num_seen(with(1, 3, 1), 0.4F), 2U) << "min_p is stricter";
}

}  // namespace
}  // namespace halfbyte
