// SPDX-License-Identifier: Apache-2.0
//
// NaN and infinite logits: ids stay in range and distinct, other rows do not change, and a row with
// one bad logit still routes among the good ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "kernels/reference/router.h"

namespace halfbyte::reference {
namespace {

constexpr std::size_t kExperts = 160;
constexpr std::size_t kTopK = 8;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Batch {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::vector<float>> weights;
  std::vector<bool> routable;
};

Batch make_batch() {
  std::mt19937 random(36);
  std::normal_distribution<float> normal;
  Batch batch;
  for (int row = 0; row < 8; ++row) {
    std::vector<float>& logits = batch.logits.emplace_back(kExperts);
    for (float& logit : logits)
      logit = normal(random);
  }
  return batch;
}

void route(const RouterSpec& spec, Batch& batch) {
  for (const std::vector<float>& logits : batch.logits) {
    std::vector<std::int32_t>& ids = batch.ids.emplace_back(kTopK, -1);
    std::vector<float>& weights = batch.weights.emplace_back(kTopK, kNan);
    batch.routable.push_back(route_row(spec, logits, {}, ids, weights));
  }
}

class B36NanRouterLogits : public ::testing::TestWithParam<RoutingMethod> {};

TEST_P(B36NanRouterLogits, IdsAreDistinctInRangeAndOtherRowsAreEqual) {
  RouterSpec spec;
  spec.method = GetParam();
  spec.renormalize = true;
  Batch clean = make_batch();
  route(spec, clean);
  Batch dirty = make_batch();
  dirty.logits[3].assign(kExperts, kNan);
  dirty.logits[5][17] = kNan;
  dirty.logits[6][99] = std::numeric_limits<float>::infinity();
  route(spec, dirty);
  for (std::size_t row = 0; row < 8; ++row) {
    const std::set<std::int32_t> distinct(dirty.ids[row].begin(), dirty.ids[row].end());
    EXPECT_EQ(distinct.size(), kTopK);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), static_cast<std::int32_t>(kExperts));
    EXPECT_EQ(dirty.routable[row], row != 3);
    for (const float weight : dirty.weights[row])
      EXPECT_TRUE(weight >= 0.0F && weight <= 1.0F);
    if (row == 3 || row == 5 || row == 6) continue;
    EXPECT_EQ(dirty.ids[row], clean.ids[row]);
    EXPECT_EQ(dirty.weights[row], clean.weights[row]);
  }
  EXPECT_FALSE(std::set<std::int32_t>(dirty.ids[5].begin(), dirty.ids[5].end()).contains(17));
  EXPECT_EQ(dirty.ids[6][0], 99);
}

INSTANTIATE_TEST_SUITE_P(Methods,
                         B36NanRouterLogits,
                         ::testing::Values(RoutingMethod::kSoftmaxRenorm,
                                           RoutingMethod::kSigmoidBias,
                                           RoutingMethod::kSqrtSoftplus));

}  // namespace
}  // namespace halfbyte::reference
