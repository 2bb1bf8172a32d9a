// SPDX-License-Identifier: Apache-2.0
#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace halfbyte {

std::vector<TokenLogprob> logprobs_of(std::span<const float> logits,
                                      std::int32_t token_id,
                                      int count) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - largest);
  }
  const double log_sum = std::log(sum);
  const auto logprob_of = [&](std::int32_t id) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(id)]);
    return TokenLogprob{id, static_cast<float>(logit - largest - log_sum)};
  };
  std::vector<TokenLogprob> result = {logprob_of(token_id)};
  std::vector<std::int32_t> ids;
  const std::size_t num_likeliest =
      count > 0 ? order_largest(logits, static_cast<std::size_t>(count), ids) : 0;
  for (std::size_t i = 0; i < num_likeliest; ++i) {
    result.push_back(logprob_of(ids[i]));
  }
  return result;
}

Status add_prompt_logprobs(std::span<const float> logits,
                           std::size_t vocab_size,
                           Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  const auto start = static_cast<std::size_t>(params.prompt_logprob_start);
  for (; !logits.empty(); logits = logits.subspan(vocab_size)) {
    const std::span<const float> row = logits.first(vocab_size);
    if (auto largest = largest_logit(row); !largest.ok()) return largest.take_status();
    const std::int32_t token_id = sequence.tokens[start + sequence.prompt_logprobs.size()];
    sequence.prompt_logprobs.push_back(logprobs_of(row, token_id, params.num_prompt_logprobs));
  }
  return {};
}

}  // namespace halfbyte
