// SPDX-License-Identifier: Apache-2.0
//
// All-negative logits and expert counts that are not powers of two: nothing initialised with zero
// may beat a real logit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/reference/router.h"

namespace halfbyte::reference {
namespace {

struct Routed {
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(8, -1);
  std::vector<float> weights = std::vector<float>(8, -1.0F);
};

Routed route(const RouterSpec& spec, const std::vector<float>& logits) {
  Routed row;
  EXPECT_TRUE(route_row(spec, logits, {}, row.ids, row.weights));
  return row;
}

std::vector<std::int32_t> best_8(const std::vector<float>& logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Equal logits: the lowest expert first.
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(-logits[static_cast<std::size_t>(a)], a) <
           std::pair(-logits[static_cast<std::size_t>(b)], b);
  });
  order.resize(8);
  return order;
}

TEST(B34NegativeLogits, TheBestExpertsWinAndWeightsSumToOne) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-30.0F, -5.0F);
  for (const std::size_t experts : {160U, 512U}) {
    for (int token = 0; token < 64; ++token) {
      std::vector<float> logits(experts);
      for (float& logit : logits)
        logit = uniform(random);
      const Routed row = route({}, logits);
      EXPECT_EQ(row.ids, best_8(logits));
      EXPECT_NEAR(std::accumulate(row.weights.begin(), row.weights.end(), 0.0), 1.0, 1e-6);
    }
  }
}

TEST(B34NegativeLogits, AllEqualLogitsChooseTheFirstExpertsWithEqualWeights) {
  for (const std::size_t experts : {160U, 512U}) {
    const Routed row = route({}, std::vector<float>(experts, -7.0F));
    for (std::size_t slot = 0; slot < 8; ++slot) {
      EXPECT_EQ(row.ids[slot], static_cast<std::int32_t>(slot));
      EXPECT_FLOAT_EQ(row.weights[slot], 0.125F);
    }
  }
}

TEST(B34NegativeLogits, TopKThenSoftmaxIsTheSameAsRenormalisedSoftmax) {
  const std::vector<float> logits = {-30.0F, -5.0F,  -6.0F,  -7.0F,  -8.0F,
                                     -9.0F,  -10.0F, -11.0F, -12.0F, -13.0F};
  const Routed row = route({}, logits);
  double sum = 0.0;
  for (int i = 5; i <= 12; ++i)
    sum += std::exp(-i);
  for (std::size_t slot = 0; slot < 8; ++slot)
    EXPECT_NEAR(static_cast<double>(row.weights[slot]),
                std::exp(-5.0 - static_cast<double>(slot)) / sum, 1e-6);
}

}  // namespace
}  // namespace halfbyte::reference
