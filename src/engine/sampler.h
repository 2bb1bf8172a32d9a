// SPDX-License-Identifier: Apache-2.0
//
// Logits of one position -> one token id.
#ifndef HALFBYTE_ENGINE_SAMPLER_H_
#define HALFBYTE_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte {

/// The id of the largest logit, the lowest one of equals. kCorruptData when a logit is NaN or +inf
/// (the first is named), or all are -inf.
Result<std::int32_t> largest_logit(std::span<const float> logits);

/// Puts all ids into `ids`, the first ones in order: larger logit, then lower id. Returns how many
/// those are: `count`, or all.
std::size_t order_largest(std::span<const float> logits,
                          std::size_t count,
                          std::vector<std::int32_t>& ids);

/// Order: greedy if the temperature is 0; else temperature, top_k, top_p, min_p, draw. Sums are
/// fp64 in a fixed order and the random number depends on (seed, position) alone, so a token
/// depends on its own logits and parameters, never on what else is in the batch. Thread rule: one
/// thread.
class Sampler {
 public:
  /// `logits` [vocab]; `position` is the index the token will have in its sequence. Equal logits:
  /// the lowest id is preferred everywhere. -inf is a token that cannot be drawn.
  ///
  /// Errors: those of largest_logit().
  Result<std::int32_t> sample(std::span<const float> logits,
                              const SamplingParams& params,
                              std::int64_t position);

 private:
  std::int32_t draw(std::span<const float> logits,
                    const SamplingParams& params,
                    double largest,
                    double random);
  std::size_t cut_top_p(std::span<const float> logits,
                        const SamplingParams& params,
                        double largest);

  std::vector<std::int32_t> ids_;  // the first ones are in order: larger logit, then lower id
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SAMPLER_H_
