// SPDX-License-Identifier: Apache-2.0
//
// From a sequence's logits to its next token: what its request asks for, then the sampler.
#ifndef HALFBYTE_ENGINE_TOKEN_SELECTOR_H_
#define HALFBYTE_ENGINE_TOKEN_SELECTOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/sequence.h"

namespace halfbyte {

struct SelectedToken {
  std::int32_t token_id = 0;
  std::vector<TokenLogprob> logprobs;  // as TokenEvent's
};

/// Order: logit_bias, repetition_penalty, frequency_penalty and presence_penalty, the ends of text
/// before min_new_tokens, the constraint's mask, the sampler. Penalties are counted from the
/// sequence's tokens each time, so a preemption changes none. Logits are copied only for a request
/// that changes them. Thread rule: one thread.
class TokenSelector {
 public:
  /// Ids from `num_sampled_ids` on are never chosen, whatever their logits; 0: all may be.
  explicit TokenSelector(std::int64_t num_sampled_ids = 0);

  /// `logits` [vocab] follow the sequence's last token; its constraint accepts the result, which is
  /// not appended.
  ///
  /// @return kCorruptData: logits that are no numbers; kInvalidArgument: no token is left, with the
  ///         reason; else the constraint's own failure.
  Result<SelectedToken> select(std::span<const float> logits, Sequence& sequence);

 private:
  Status adjust(std::span<const float> logits, Sequence& sequence);
  void add_bias(const SamplingParams& params);
  void penalize_repetition(const Sequence& sequence);
  void penalize_answer(const Sequence& sequence);
  void forbid_ends(const Sequence& sequence);
  Status apply_mask(TokenConstraint& constraint);
  Status check_any_left(const Sequence& sequence) const;
  std::span<const float> sampled(std::span<const float> logits) const;

  std::size_t num_sampled_ids_;
  Sampler sampler_;
  std::vector<float> logits_;         // of a request that changes them
  std::vector<std::int32_t> counts_;  // [vocab]; all 0 between calls
  std::vector<std::uint32_t> mask_;   // a bit per token
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_TOKEN_SELECTOR_H_
