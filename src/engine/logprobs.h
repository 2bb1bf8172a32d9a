// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_LOGPROBS_H_
#define HALFBYTE_ENGINE_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace halfbyte {

/// The log-softmax of `logits` [vocab], finite or -inf and not all -inf: of `token_id` first, then
/// of the `count` largest logits, the lower id first of equals. Sums are fp64 in the order of the
/// ids. -inf where the logit is. O(vocab).
std::vector<TokenLogprob> logprobs_of(std::span<const float> logits,
                                      std::int32_t token_id,
                                      int count);

/// Appends the logprobs of the prompt's next tokens to the sequence, one for each row of `logits`
/// [n, vocab_size]. Errors: those of largest_logit().
Status add_prompt_logprobs(std::span<const float> logits,
                           std::size_t vocab_size,
                           Sequence& sequence);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_LOGPROBS_H_
