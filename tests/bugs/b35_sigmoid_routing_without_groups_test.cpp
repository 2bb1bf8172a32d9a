// SPDX-License-Identifier: Apache-2.0
//
// n_group of 0 or 1 means no groups at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reference/router.h"

namespace halfbyte::reference {
namespace {

std::vector<std::int32_t> route(const RouterSpec& spec,
                                const std::vector<float>& logits,
                                const std::vector<float>& bias) {
  EXPECT_TRUE(check_router(spec, static_cast<std::int64_t>(logits.size()), 8).ok());
  std::vector<std::int32_t> ids(8);
  std::vector<float> weights(8);
  route_row(spec, logits, bias, ids, weights);
  return ids;
}

TEST(B35SigmoidRoutingWithoutGroups, ZeroAndOneGroupsArePlainTopK) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits(64), bias(64);
  for (std::size_t e = 0; e < 64; ++e) {
    logits[e] = normal(random);
    bias[e] = 0.1F * normal(random);
  }
  RouterSpec plain;
  plain.method = RoutingMethod::kSigmoidBias;
  const std::vector<std::int32_t> want = route(plain, logits, bias);
  RouterSpec grouped;
  grouped.method = RoutingMethod::kGroupedTop2;
  for (const int num_groups : {0, 1}) {
    for (const int topk_group : {0, 1}) {
      grouped.num_groups = num_groups;
      grouped.topk_group = topk_group;
      EXPECT_EQ(route(grouped, logits, bias), want);
    }
  }
  grouped.num_groups = 8;
  grouped.topk_group = 1;
  EXPECT_NE(route(grouped, logits, bias), want);
}

TEST(B35SigmoidRoutingWithoutGroups, GroupsThatDoNotDivideTheExpertsAreRefused) {
  RouterSpec spec;
  spec.method = RoutingMethod::kGroupedTop2;
  spec.num_groups = 8;
  spec.topk_group = 4;
  EXPECT_EQ(check_router(spec, 60, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(check_router(spec, 64, 4).ok());
}

}  // namespace
}  // namespace halfbyte::reference
