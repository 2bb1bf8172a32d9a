// SPDX-License-Identifier: Apache-2.0
//
// Routing methods against an fp64 search, ties, groups, bias, and the refusals.
#include "kernels/reference/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace halfbyte::reference {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  bool routable = false;
};

Routed route(const RouterSpec& spec,
             const std::vector<float>& logits,
             std::size_t top_k,
             const std::vector<float>& bias = {}) {
  Routed row;
  row.ids.resize(top_k, -7);
  row.weights.resize(top_k, -7.0F);
  EXPECT_TRUE(
      check_router(spec, static_cast<std::int64_t>(logits.size()), static_cast<std::int64_t>(top_k))
          .ok());
  row.routable = route_row(spec, logits, bias, row.ids, row.weights);
  return row;
}

double score_in_fp64(const RouterSpec& spec, double logit, double max, double sum) {
  switch (spec.method) {
    case RoutingMethod::kSoftmax:
    case RoutingMethod::kSoftmaxRenorm:
      return std::exp(logit - max) / sum;
    case RoutingMethod::kSqrtSoftplus:
      return std::sqrt(std::log1p(std::exp(logit)));
    case RoutingMethod::kGroupedMax:
      if (!spec.grouped_max_uses_sigmoid) return std::exp(logit - max) / sum;
      [[fallthrough]];
    default:
      return 1.0 / (1.0 + std::exp(-logit));
  }
}

struct Fp64Routing {
  std::vector<double> p;      // per expert
  std::vector<double> score;  // biased, dropped groups at -infinity
};

Fp64Routing route_in_fp64(const RouterSpec& spec,
                          const std::vector<float>& logits,
                          const std::vector<float>& bias) {
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - max);
  Fp64Routing routing;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    routing.p.push_back(score_in_fp64(spec, static_cast<double>(logits[e]), max, sum));
    const bool biased = router_uses_bias(spec.method) && !bias.empty();
    routing.score.push_back(routing.p[e] + (biased ? static_cast<double>(bias[e]) : 0.0));
  }
  return routing;
}

void drop_groups_in_fp64(const RouterSpec& spec, Fp64Routing& routing) {
  const auto groups = static_cast<std::size_t>(spec.num_groups);
  const std::size_t size = routing.score.size() / groups;
  std::vector<double> group_score;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<double> members(
        routing.score.begin() + static_cast<std::ptrdiff_t>(g * size),
        routing.score.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    group_score.push_back(spec.method == RoutingMethod::kGroupedTop2 ? members[0] + members[1]
                                                                     : members[0]);
  }
  std::vector<double> sorted = group_score;
  std::sort(sorted.rbegin(), sorted.rend());
  const double last_kept = sorted[static_cast<std::size_t>(spec.topk_group) - 1];
  for (std::size_t e = 0; e < routing.score.size(); ++e) {
    if (group_score[e / size] < last_kept) routing.score[e] = -1e300;
  }
}

std::vector<std::int32_t> best_in_fp64(const Fp64Routing& routing, std::size_t top_k) {
  std::vector<std::int32_t> order(routing.score.size());
  std::iota(order.begin(), order.end(), 0);
  // Equal scores: the lowest expert first.
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(-routing.score[static_cast<std::size_t>(a)], a) <
           std::pair(-routing.score[static_cast<std::size_t>(b)], b);
  });
  order.resize(top_k);
  return order;
}

std::vector<float> random_logits(std::size_t count, float low, float high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> logits(count);
  for (float& logit : logits)
    logit = uniform(random);
  return logits;
}

void expect_matches_fp64(const RouterSpec& spec,
                         const std::vector<float>& logits,
                         const std::vector<float>& bias,
                         std::size_t top_k) {
  Fp64Routing want = route_in_fp64(spec, logits, bias);
  const bool grouped =
      spec.method == RoutingMethod::kGroupedMax || spec.method == RoutingMethod::kGroupedTop2;
  if (grouped && spec.num_groups > 1) drop_groups_in_fp64(spec, want);
  const std::vector<std::int32_t> ids = best_in_fp64(want, top_k);
  const Routed got = route(spec, logits, top_k, bias);
  EXPECT_EQ(got.ids, ids);
  const bool renormalize = spec.method == RoutingMethod::kSoftmaxRenorm ||
                           (spec.renormalize && spec.method != RoutingMethod::kSoftmax);
  double sum = 0.0;
  for (const std::int32_t id : ids)
    sum += want.p[static_cast<std::size_t>(id)];
  for (std::size_t slot = 0; slot < top_k; ++slot) {
    const double p = want.p[static_cast<std::size_t>(ids[slot])];
    const double weight =
        (renormalize ? p / sum : p) * static_cast<double>(spec.routed_scaling_factor);
    EXPECT_NEAR(static_cast<double>(got.weights[slot]), weight, 4e-6 * weight + 1e-30);
  }
}

TEST(RouteRow, EveryMethodMatchesAnFp64Search) {
  std::vector<RouterSpec> specs;
  for (const RoutingMethod method :
       {RoutingMethod::kSoftmax, RoutingMethod::kSoftmaxRenorm, RoutingMethod::kSigmoidBias,
        RoutingMethod::kGroupedMax, RoutingMethod::kGroupedTop2, RoutingMethod::kSqrtSoftplus}) {
    for (const bool renormalize : {false, true}) {
      RouterSpec spec;
      spec.method = method;
      spec.renormalize = renormalize;
      spec.routed_scaling_factor = renormalize ? 2.5F : 1.0F;
      spec.num_groups = 8;
      spec.topk_group = 3;
      specs.push_back(spec);
      spec.grouped_max_uses_sigmoid = true;
      specs.push_back(spec);
    }
  }
  for (const RouterSpec& spec : specs) {
    for (const std::size_t experts : {160U, 256U, 512U}) {
      const std::vector<float> bias = random_logits(experts, -0.2F, 0.2F, 99);
      for (unsigned seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(static_cast<int>(spec.method));
        expect_matches_fp64(spec, random_logits(experts, -6.0F, 6.0F, seed), bias, 8);
      }
    }
  }
}

TEST(RouteRow, RenormalisedWeightsSumToOne) {
  const Routed row = route({}, random_logits(256, -6.0F, 6.0F, 1), 8);
  EXPECT_NEAR(std::accumulate(row.weights.begin(), row.weights.end(), 0.0), 1.0, 1e-6);
}

TEST(RouteRow, PlainSoftmaxDoesNotRenormaliseEvenWhenAsked) {
  RouterSpec spec;
  spec.method = RoutingMethod::kSoftmax;
  spec.renormalize = true;
  const Routed row = route(spec, {0.0F, 0.0F, 0.0F, 0.0F}, 2);
  EXPECT_THAT(row.weights, ElementsAre(0.25F, 0.25F));
}

TEST(RouteRow, SlotsDescendAndTiesTakeTheLowestExpert) {
  RouterSpec spec;
  EXPECT_THAT(route(spec, {1.0F, 3.0F, 3.0F, 2.0F, 3.0F}, 4).ids, ElementsAre(1, 2, 4, 3));
  spec.method = RoutingMethod::kSigmoidBias;
  EXPECT_THAT(route(spec, {1.0F, 3.0F, 3.0F, 2.0F, 3.0F}, 4).ids, ElementsAre(1, 2, 4, 3));
}

TEST(RouteRow, GroupTiesTakeTheLowestGroup) {
  RouterSpec spec;
  spec.method = RoutingMethod::kGroupedMax;
  spec.num_groups = 3;
  spec.topk_group = 1;
  EXPECT_THAT(route(spec, {0.0F, 5.0F, 5.0F, 1.0F, 5.0F, 2.0F}, 2).ids, ElementsAre(1, 0));
}

TEST(RouteRow, DroppedGroupsLoseEvenWhenKeptScoresAreNegative) {
  // Group 0 wins by its two best; its other members are far below group 1's.
  RouterSpec spec;
  spec.method = RoutingMethod::kGroupedTop2;
  spec.num_groups = 2;
  spec.topk_group = 1;
  const std::vector<float> bias = {3.0F, 3.0F, -9.0F, -9.0F, 2.0F, 2.0F, 2.0F, 2.0F};
  EXPECT_THAT(route(spec, std::vector<float>(8, 0.0F), 4, bias).ids, ElementsAre(0, 1, 2, 3));
}

TEST(RouteRow, TheBiasChoosesButDoesNotWeigh) {
  // Scores .500 and .490, bias 7.000 and 7.012: expert 1 in fp32; a bias cut to bf16 picks 0.
  RouterSpec spec;
  spec.method = RoutingMethod::kSigmoidBias;
  const float logit = std::log(.49F / .51F);
  const Routed row = route(spec, {0.0F, logit}, 1, {7.0F, 7.012F});
  EXPECT_THAT(row.ids, ElementsAre(1));
  EXPECT_NEAR(row.weights[0], .49F, 1e-6F);
}

TEST(RouteRow, MethodsWithoutABiasIgnoreOne) {
  for (const RoutingMethod method :
       {RoutingMethod::kSoftmax, RoutingMethod::kSoftmaxRenorm, RoutingMethod::kGroupedMax}) {
    RouterSpec spec;
    spec.method = method;
    EXPECT_FALSE(router_uses_bias(method));
    EXPECT_THAT(route(spec, {1.0F, 0.0F}, 1, {0.0F, 9.0F}).ids, ElementsAre(0));
  }
}

TEST(RouteRow, TheScalingFactorIsAppliedOnceWithAndWithoutRenormalising) {
  for (const RoutingMethod method :
       {RoutingMethod::kSoftmax, RoutingMethod::kSoftmaxRenorm, RoutingMethod::kSigmoidBias,
        RoutingMethod::kGroupedMax, RoutingMethod::kGroupedTop2, RoutingMethod::kSqrtSoftplus}) {
    for (const bool renormalize : {false, true}) {
      RouterSpec spec;
      spec.method = method;
      spec.renormalize = renormalize;
      const std::vector<float> logits = random_logits(32, -3.0F, 3.0F, 5);
      const Routed plain = route(spec, logits, 4);
      spec.routed_scaling_factor = 2.5F;
      const Routed scaled = route(spec, logits, 4);
      for (std::size_t slot = 0; slot < 4; ++slot)
        EXPECT_EQ(scaled.weights[slot], plain.weights[slot] * 2.5F);
    }
  }
}

TEST(RouteRow, Llama4WeighsWithTheSigmoidOfTheLargestLogit) {
  RouterSpec spec;
  spec.method = RoutingMethod::kLlama4;
  const Routed row = route(spec, {-5.0F, 1.0F, 0.5F}, 1);
  EXPECT_THAT(row.ids, ElementsAre(1));
  EXPECT_EQ(row.weights[0], 0.731058598F);
}

TEST(RouteRow, SaturatedLogitsOfLlama4StillDiffer) {
  // sigmoid is 1 for both in fp32; selection goes by logit.
  RouterSpec spec;
  spec.method = RoutingMethod::kLlama4;
  EXPECT_THAT(route(spec, {40.0F, 41.0F}, 1).ids, ElementsAre(1));
}

TEST(RouteRow, ExpertsAtMinusInfinityRankLastWithWeightZero) {
  const float none = -std::numeric_limits<float>::infinity();
  for (const RoutingMethod method :
       {RoutingMethod::kSoftmaxRenorm, RoutingMethod::kSigmoidBias, RoutingMethod::kSqrtSoftplus}) {
    RouterSpec spec;
    spec.method = method;
    spec.renormalize = true;
    const std::vector<float> bias = {100.0F, 0.0F, 100.0F, 0.0F};
    const Routed row = route(spec, {none, 1.0F, none, 2.0F}, 3, bias);
    EXPECT_THAT(row.ids, ElementsAre(3, 1, 0));
    EXPECT_EQ(row.weights[2], 0.0F);
    EXPECT_NEAR(row.weights[0] + row.weights[1], 1.0F, 1e-6F);
  }
}

TEST(RouteRow, AGroupWithOneUsableExpertBeatsAGroupWithNone) {
  const float none = -std::numeric_limits<float>::infinity();
  RouterSpec spec;
  spec.method = RoutingMethod::kGroupedTop2;
  spec.num_groups = 2;
  spec.topk_group = 1;
  EXPECT_THAT(route(spec, {none, none, none, 0.0F}, 1).ids, ElementsAre(3));
}

TEST(RouteRow, ARowWithoutAFiniteLogitIsUnroutable) {
  for (const RoutingMethod method :
       {RoutingMethod::kSoftmax, RoutingMethod::kSigmoidBias, RoutingMethod::kGroupedTop2}) {
    RouterSpec spec;
    spec.method = method;
    const Routed row =
        route(spec, std::vector<float>(8, std::numeric_limits<float>::quiet_NaN()), 3);
    EXPECT_FALSE(row.routable);
    EXPECT_THAT(row.ids, ElementsAre(0, 1, 2));
    EXPECT_THAT(row.weights, Each(0.0F));
  }
}

TEST(CheckRouter, WhatCannotRouteIsRefused) {
  RouterSpec spec;
  EXPECT_FALSE(check_router(spec, 8, 9).ok());
  EXPECT_FALSE(check_router(spec, 8, 0).ok());
  spec.method = RoutingMethod::kGroupedTop2;
  spec.num_groups = 3;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());  // 3 does not divide 8
  spec.num_groups = 4;
  spec.topk_group = 5;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());
  spec.topk_group = 0;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());
  spec.topk_group = 2;
  EXPECT_TRUE(check_router(spec, 8, 4).ok());
  EXPECT_FALSE(check_router(spec, 8, 5).ok());  // 2 groups of 2 hold only 4
  spec.num_groups = 8;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());  // groups of one
  spec.method = RoutingMethod::kGroupedMax;
  EXPECT_TRUE(check_router(spec, 8, 2).ok());
  spec.num_groups = -1;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());
  spec = {};
  spec.routed_scaling_factor = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(check_router(spec, 8, 2).ok());
  spec = {};
  spec.method = RoutingMethod::kLlama4;
  EXPECT_FALSE(check_router(spec, 8, 2).ok());
}

}  // namespace
}  // namespace halfbyte::reference
