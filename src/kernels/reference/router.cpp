// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/reference/portable_math.h"
#include "kernels/reference/scratch.h"

namespace halfbyte::reference {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kFloatMax = std::numeric_limits<float>::max();

/// What one row needs; views into a thread's scratch.
struct Row {
  std::span<float> logit;         // [E], without NaN and +inf
  std::span<float> weight;        // [E], p of the method
  std::span<float> score;         // [E], what selection compares
  std::span<std::int32_t> order;  // [E], experts that may be chosen, then the best first
};

Row make_row(std::size_t num_experts) {
  thread_local std::vector<float> floats;
  thread_local std::vector<std::int32_t> indices;
  const auto count = static_cast<std::int64_t>(num_experts);
  float* data = scratch_at_least(floats, 3 * count);
  return {{data, num_experts},
          {data + num_experts, num_experts},
          {data + 2 * num_experts, num_experts},
          {scratch_at_least(indices, count), num_experts}};
}

float clean_logit(float logit) {
  if (std::isnan(logit)) return kNever;
  return std::min(logit, kFloatMax);
}

void softmax(std::span<const float> logit, std::span<float> p) {
  const float max = *std::max_element(logit.begin(), logit.end());
  float sum = 0.0F;
  for (std::size_t e = 0; e < logit.size(); ++e) {
    p[e] = logit[e] == kNever ? 0.0F : portable_exp(logit[e] - max);
    sum += p[e];
  }
  for (float& value : p)
    value /= sum;
}

void compute_weights(const RouterSpec& spec, const Row& row) {
  if (router_scores_by_softmax(spec)) return softmax(row.logit, row.weight);
  const bool softplus = spec.method == RoutingMethod::kSqrtSoftplus;
  for (std::size_t e = 0; e < row.logit.size(); ++e) {
    const float logit = row.logit[e];
    const float p = softplus ? std::sqrt(portable_softplus(logit)) : portable_sigmoid(logit);
    row.weight[e] = logit == kNever ? 0.0F : p;
  }
}

void compute_scores(const RouterSpec& spec, std::span<const float> bias, const Row& row) {
  const bool by_logit = router_scores_by_softmax(spec) || spec.method == RoutingMethod::kLlama4;
  const bool biased = router_uses_bias(spec.method) && !bias.empty();
  for (std::size_t e = 0; e < row.logit.size(); ++e) {
    const float score = by_logit ? row.logit[e] : row.weight[e] + (biased ? bias[e] : 0.0F);
    // Whatever its bias, an expert at -inf ranks last.
    row.score[e] = row.logit[e] == kNever || std::isnan(score) ? kNever : score;
  }
}

float sum_of_two_largest(std::span<const float> values) {
  // Clipped, so that a group with one usable expert beats one with none.
  float first = kNever;
  float second = kNever;
  for (const float value : values) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  return std::max(first, -kFloatMax) + std::max(second, -kFloatMax);
}

/// Brings the `count` best of `order` to its front: scores descend, equal scores in index order.
void put_best_first(std::span<const float> score,
                    std::span<std::int32_t> order,
                    std::size_t count) {
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [score](std::int32_t a, std::int32_t b) {
                      const float score_a = score[static_cast<std::size_t>(a)];
                      const float score_b = score[static_cast<std::size_t>(b)];
                      return score_a != score_b ? score_a > score_b : a < b;
                    });
}

/// Writes the experts of the kept groups to row.order and returns how many they are.
std::size_t keep_groups(const RouterSpec& spec, const Row& row) {
  thread_local std::vector<float> scores;
  thread_local std::vector<std::int32_t> groups;
  const auto num_groups = static_cast<std::size_t>(spec.num_groups);
  const auto num_kept = static_cast<std::size_t>(spec.topk_group);
  const std::size_t size = row.score.size() / num_groups;
  const std::span<float> score(scratch_at_least(scores, spec.num_groups), num_groups);
  const std::span<std::int32_t> order(scratch_at_least(groups, spec.num_groups), num_groups);
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::span<const float> members = row.score.subspan(group * size, size);
    score[group] = spec.method == RoutingMethod::kGroupedTop2
                       ? sum_of_two_largest(members)
                       : *std::max_element(members.begin(), members.end());
  }
  std::iota(order.begin(), order.end(), 0);
  put_best_first(score, order, num_kept);
  for (std::size_t i = 0; i < num_kept; ++i) {
    const auto first = order[i] * static_cast<std::int32_t>(size);
    const std::span<std::int32_t> experts = row.order.subspan(i * size, size);
    std::iota(experts.begin(), experts.end(), first);
  }
  return num_kept * size;
}

void finish_weights(const RouterSpec& spec, std::span<float> weights) {
  if (router_renormalizes(spec)) {
    float sum = 0.0F;
    for (const float weight : weights)
      sum += weight;
    for (float& weight : weights)
      weight /= sum + 1e-20F;
  }
  for (float& weight : weights)
    weight *= spec.routed_scaling_factor;
}

Status check_groups(const RouterSpec& spec, std::int64_t num_experts, std::int64_t top_k) {
  const std::int64_t group_size = num_experts / spec.num_groups;
  if (num_experts % spec.num_groups != 0) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("router: n_group {} does not divide {} experts", spec.num_groups, num_experts));
  }
  if (spec.topk_group < 1 || spec.topk_group > spec.num_groups) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("router: topk_group {}, want 1 to n_group {}", spec.topk_group,
                              spec.num_groups));
  }
  if (top_k > spec.topk_group * group_size) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("router: top_k {} exceeds the {} experts of {} kept groups", top_k,
                              spec.topk_group * group_size, spec.topk_group));
  }
  if (spec.method == RoutingMethod::kGroupedTop2 && group_size < 2) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("router: {} groups of one expert, but a group's score needs two",
                              spec.num_groups));
  }
  return {};
}

}  // namespace

bool router_uses_bias(RoutingMethod method) {
  return method == RoutingMethod::kSigmoidBias || method == RoutingMethod::kGroupedTop2 ||
         method == RoutingMethod::kSqrtSoftplus;
}

bool router_has_groups(const RouterSpec& spec) {
  const bool method =
      spec.method == RoutingMethod::kGroupedMax || spec.method == RoutingMethod::kGroupedTop2;
  return method && spec.num_groups > 1;
}

bool router_scores_by_softmax(const RouterSpec& spec) {
  return spec.method == RoutingMethod::kSoftmax || spec.method == RoutingMethod::kSoftmaxRenorm ||
         (spec.method == RoutingMethod::kGroupedMax && !spec.grouped_max_uses_sigmoid);
}

bool router_renormalizes(const RouterSpec& spec) {
  switch (spec.method) {
    case RoutingMethod::kSoftmaxRenorm:
      return true;
    case RoutingMethod::kSoftmax:
    case RoutingMethod::kLlama4:
      return false;
    default:
      return spec.renormalize;
  }
}

Status check_router(const RouterSpec& spec, std::int64_t num_experts, std::int64_t top_k) {
  if (top_k < 1 || top_k > num_experts) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("router: top_k {}, want 1 to {} (the number of experts)", top_k, num_experts));
  }
  if (spec.method == RoutingMethod::kLlama4 && top_k != 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("router: method llama4 with top_k {}, want 1", top_k));
  }
  if (!std::isfinite(spec.routed_scaling_factor)) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("router: routed_scaling_factor {}, want finite", spec.routed_scaling_factor));
  }
  if (spec.num_groups < 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("router: n_group {}, want >= 0", spec.num_groups));
  }
  return router_has_groups(spec) ? check_groups(spec, num_experts, top_k) : Status();
}

bool route_row(const RouterSpec& spec,
               std::span<const float> logits,
               std::span<const float> bias,
               std::span<std::int32_t> topk_idx,
               std::span<float> topk_weights) {
  const Row row = make_row(logits.size());
  std::transform(logits.begin(), logits.end(), row.logit.begin(), clean_logit);
  if (std::all_of(row.logit.begin(), row.logit.end(), [](float l) { return l == kNever; })) {
    std::iota(topk_idx.begin(), topk_idx.end(), 0);
    std::fill(topk_weights.begin(), topk_weights.end(), 0.0F);
    return false;
  }
  compute_weights(spec, row);
  compute_scores(spec, bias, row);
  std::iota(row.order.begin(), row.order.end(), 0);
  const std::size_t num_candidates =
      router_has_groups(spec) ? keep_groups(spec, row) : logits.size();
  put_best_first(row.score, row.order.first(num_candidates), topk_idx.size());
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    topk_idx[slot] = row.order[slot];
    topk_weights[slot] = row.weight[static_cast<std::size_t>(row.order[slot])];
  }
  finish_weights(spec, topk_weights);
  return true;
}

}  // namespace halfbyte::reference
