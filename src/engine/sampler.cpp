// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/random.h"

namespace halfbyte {
namespace {

// exp((logit - largest) / temperature): at most 1, and 1 for the largest.
double weight_of(float logit, double largest, double temperature) {
  return std::exp((static_cast<double>(logit) - largest) / temperature);
}

}  // namespace

Result<std::int32_t> largest_logit(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      return Status(StatusCode::kCorruptData,
                    fmt::format("logit of token {} is {}, want a finite number: the weights or the "
                                "activations overflowed; `halfbyte check` looks for bad weights",
                                i, logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || std::isinf(logits[best])) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("all {} logits are -inf: no token can be chosen", logits.size()));
  }
  return static_cast<std::int32_t>(best);
}

std::size_t order_largest(std::span<const float> logits,
                          std::size_t count,
                          std::vector<std::int32_t>& ids) {
  ids.resize(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  const auto before = [logits](std::int32_t a, std::int32_t b) {
    const float logit_a = logits[static_cast<std::size_t>(a)];
    const float logit_b = logits[static_cast<std::size_t>(b)];
    return logit_a > logit_b || (logit_a == logit_b && a < b);
  };
  const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(ids.begin(), middle, ids.end(), before);
  return count;
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits,
                                     const SamplingParams& params,
                                     std::int64_t position) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::int32_t best, largest_logit(logits));
  if (params.temperature == 0.0F || params.top_k == 1) return best;
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  const double random = uniform(params.seed, static_cast<std::uint64_t>(position));
  return draw(logits, params, largest, random);
}

// How many ids, in order, reach top_p of the weight that top_k leaves; at least 1. Ids are ordered
// a few at a time because the answer is usually short; the result does not depend on the steps.
std::size_t Sampler::cut_top_p(std::span<const float> logits,
                               const SamplingParams& params,
                               double largest) {
  const bool has_top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  const std::size_t limit = has_top_k ? static_cast<std::size_t>(params.top_k) : logits.size();
  std::size_t ordered = order_largest(logits, has_top_k ? limit : std::size_t{256}, ids_);
  double total = 0.0;
  if (has_top_k) {
    for (std::size_t i = 0; i < limit; ++i) {
      total += weight_of(logits[static_cast<std::size_t>(ids_[i])], largest, params.temperature);
    }
  } else {
    for (const float logit : logits) {
      total += weight_of(logit, largest, params.temperature);
    }
  }
  const double wanted = static_cast<double>(params.top_p) * total;
  double sum = 0.0;
  for (std::size_t i = 0; i < limit; ++i) {
    if (i == ordered) ordered = order_largest(logits, ordered * 4, ids_);
    sum += weight_of(logits[static_cast<std::size_t>(ids_[i])], largest, params.temperature);
    if (sum >= wanted) return i + 1;
  }
  return limit;
}

// The first id, in order, at which the running sum of weights passes random * total.
std::int32_t Sampler::draw(std::span<const float> logits,
                           const SamplingParams& params,
                           double largest,
                           double random) {
  const bool keeps_all = params.top_p >= 1.0F && params.top_k <= 0;
  std::size_t count = logits.size();
  if (keeps_all) {
    ids_.resize(count);
    std::iota(ids_.begin(), ids_.end(), 0);
  } else {
    count = cut_top_p(logits, params, largest);
  }
  const double min_weight = params.min_p;  // the largest weight is 1
  const auto weight = [&](std::size_t i) {
    const double w =
        weight_of(logits[static_cast<std::size_t>(ids_[i])], largest, params.temperature);
    return w < min_weight ? 0.0 : w;
  };
  double total = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    total += weight(i);
  }
  double sum = 0.0;
  std::int32_t last_possible = ids_[0];
  for (std::size_t i = 0; i < count; ++i) {
    const double w = weight(i);
    if (w > 0.0) last_possible = ids_[i];
    sum += w;
    if (sum > random * total) return ids_[i];
  }
  return last_possible;  // rounding of random * total
}

}  // namespace halfbyte
