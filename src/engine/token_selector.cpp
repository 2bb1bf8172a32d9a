// SPDX-License-Identifier: Apache-2.0
#include "engine/token_selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "engine/logprobs.h"

namespace halfbyte {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kWordBits = 32;

std::int64_t answer_tokens(const Sequence& sequence) {
  return sequence.num_tokens() - sequence.num_prompt_tokens;
}

bool forbids_ends(const Sequence& sequence) {
  return answer_tokens(sequence) < sequence.sampling.min_new_tokens;
}

bool penalizes_answer(const SamplingParams& params) {
  return params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
}

bool changes_logits(const Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  return sequence.constraint != nullptr || !params.logit_bias.empty() ||
         params.repetition_penalty != 1.0F || penalizes_answer(params) || forbids_ends(sequence);
}

// Rounds once, and to the largest float where it would overflow; -inf stays.
float to_logit(double value, float before) {
  if (before == kNever) return before;
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

// A constraint comes from outside the engine: what it throws or reports, and a token that it
// refuses although its mask allows it, are its failure, not the engine's and not the request's.
template <typename Call>
Status call_constraint(const Call& call) {
  try {
    const Status status = call();
    if (status.ok()) return {};
    return {StatusCode::kInternal, fmt::format("constraint: {}", status.message())};
  } catch (const std::exception& e) {
    return {StatusCode::kInternal, fmt::format("constraint: it threw {}", e.what())};
  }
}

}  // namespace

TokenSelector::TokenSelector(std::int64_t num_sampled_ids)
    : num_sampled_ids_(num_sampled_ids > 0 ? static_cast<std::size_t>(num_sampled_ids)
                                           : std::numeric_limits<std::size_t>::max()) {}

// Those of ids that may be chosen.
std::span<const float> TokenSelector::sampled(std::span<const float> logits) const {
  return logits.first(std::min(num_sampled_ids_, logits.size()));
}

Result<SelectedToken> TokenSelector::select(std::span<const float> logits, Sequence& sequence) {
  std::span<const float> adjusted = logits;
  if (changes_logits(sequence)) {
    HALFBYTE_RETURN_IF_ERROR(adjust(logits, sequence));
    adjusted = logits_;
  }
  SelectedToken selected;
  HALFBYTE_ASSIGN_OR_RETURN(selected.token_id, sampler_.sample(sampled(adjusted), sequence.sampling,
                                                               sequence.num_tokens()));
  if (sequence.constraint) {
    HALFBYTE_RETURN_IF_ERROR(
        call_constraint([&] { return sequence.constraint->accept(selected.token_id); }));
  }
  if (sequence.sampling.num_logprobs >= 0) {
    selected.logprobs = logprobs_of(logits, selected.token_id, sequence.sampling.num_logprobs);
  }
  return selected;
}

// The model's logits are looked at before a mask could hide one that is no number.
Status TokenSelector::adjust(std::span<const float> logits, Sequence& sequence) {
  if (auto largest = largest_logit(sampled(logits)); !largest.ok()) return largest.take_status();
  logits_.assign(logits.begin(), logits.end());
  counts_.resize(logits.size());
  add_bias(sequence.sampling);
  if (sequence.sampling.repetition_penalty != 1.0F) penalize_repetition(sequence);
  if (penalizes_answer(sequence.sampling)) penalize_answer(sequence);
  if (forbids_ends(sequence)) forbid_ends(sequence);
  if (sequence.constraint) HALFBYTE_RETURN_IF_ERROR(apply_mask(*sequence.constraint));
  return check_any_left(sequence);
}

void TokenSelector::add_bias(const SamplingParams& params) {
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = logits_[static_cast<std::size_t>(id)];
    logit = to_logit(static_cast<double>(logit) + static_cast<double>(bias), logit);
  }
}

void TokenSelector::penalize_repetition(const Sequence& sequence) {
  const double penalty = sequence.sampling.repetition_penalty;
  for (const std::int32_t id : sequence.tokens) {
    if (counts_[static_cast<std::size_t>(id)]++ > 0) continue;
    float& logit = logits_[static_cast<std::size_t>(id)];
    const auto value = static_cast<double>(logit);
    logit = to_logit(value > 0.0 ? value / penalty : value * penalty, logit);
  }
  for (const std::int32_t id : sequence.tokens) {
    counts_[static_cast<std::size_t>(id)] = 0;
  }
}

void TokenSelector::penalize_answer(const Sequence& sequence) {
  const auto answer = std::span<const std::int32_t>(sequence.tokens)
                          .subspan(static_cast<std::size_t>(sequence.num_prompt_tokens));
  for (const std::int32_t id : answer) {
    ++counts_[static_cast<std::size_t>(id)];
  }
  const double presence = sequence.sampling.presence_penalty;
  const double frequency = sequence.sampling.frequency_penalty;
  for (const std::int32_t id : answer) {
    std::int32_t& count = counts_[static_cast<std::size_t>(id)];
    if (count == 0) continue;  // done
    float& logit = logits_[static_cast<std::size_t>(id)];
    logit = to_logit(static_cast<double>(logit) - frequency * count - presence, logit);
    count = 0;
  }
}

void TokenSelector::forbid_ends(const Sequence& sequence) {
  for (const std::int32_t id : sequence.end_token_ids) {
    logits_[static_cast<std::size_t>(id)] = kNever;
  }
}

// Bits past the vocabulary are not looked at, and what fill_mask leaves alone is forbidden. What is
// never chosen cannot be what the mask allows.
Status TokenSelector::apply_mask(TokenConstraint& constraint) {
  mask_.assign((logits_.size() + kWordBits - 1) / kWordBits, 0);
  HALFBYTE_RETURN_IF_ERROR(call_constraint([&] { return constraint.fill_mask(mask_); }));
  bool allows_any = false;
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    const bool is_allowed = ((mask_[i / kWordBits] >> (i % kWordBits)) & 1U) != 0;
    if (!is_allowed) logits_[i] = kNever;
    allows_any = allows_any || (is_allowed && i < num_sampled_ids_);
  }
  if (allows_any) return {};
  return {StatusCode::kInvalidArgument, "constraint: its mask allows no token of the vocabulary"};
}

Status TokenSelector::check_any_left(const Sequence& sequence) const {
  const auto is_left = [](float logit) { return logit != kNever; };
  if (std::ranges::any_of(sampled(logits_), is_left)) return {};
  if (!forbids_ends(sequence)) {
    return {StatusCode::kInvalidArgument,
            "the logits of all tokens that the constraint allows are -inf: none can be chosen"};
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("min_new_tokens is {} and the answer has {} tokens, but only an end of text "
                      "can come next",
                      sequence.sampling.min_new_tokens, answer_tokens(sequence))};
}

}  // namespace halfbyte
