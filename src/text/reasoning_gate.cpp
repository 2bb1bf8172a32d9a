// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/markers.h"

namespace halfbyte {
namespace {

bool is_all_newlines(std::string_view text) {
  return text.find_first_not_of('\n') == std::string_view::npos;
}

// Whether `text` closes the reasoning and goes on with content: a token may not do both.
bool closes_and_goes_on(std::string_view text) {
  const std::size_t close = text.find(kReasoningClose);
  return close != std::string_view::npos &&
         !is_all_newlines(text.substr(close + kReasoningClose.size()));
}

// Whether `text` completes a </think> that began before it, and goes on with content.
bool completes_and_goes_on(std::string_view text) {
  for (std::size_t size = 1; size < kReasoningClose.size(); ++size) {
    const std::string_view rest = kReasoningClose.substr(size);
    if (text.starts_with(rest)) return !is_all_newlines(text.substr(rest.size()));
  }
  return false;
}

void allow(std::span<std::uint32_t> mask, std::int32_t token_id) {
  const auto id = static_cast<std::size_t>(token_id);
  mask[id / 32] |= std::uint32_t{1} << (id % 32);
}

void forbid(std::span<std::uint32_t> mask, std::int32_t token_id) {
  const auto id = static_cast<std::size_t>(token_id);
  mask[id / 32] &= ~(std::uint32_t{1} << (id % 32));
}

}  // namespace

ReasoningTokens::ReasoningTokens(AnswerVocabulary given)
    : vocabulary(std::move(given)), inside((vocabulary.tokens.size() + 31) / 32) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string_view text = vocabulary.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    if (text.empty()) continue;
    if (!closes_and_goes_on(text)) allow(inside, id);
    if (text == kReasoningOpen) opens.push_back(id);
    if (is_all_newlines(text)) newlines.push_back(id);
    if (completes_and_goes_on(text)) closers.push_back(id);
  }
}

ReasoningGate::ReasoningGate(std::shared_ptr<const ReasoningTokens> tokens,
                             std::unique_ptr<TokenConstraint> content,
                             Reasoning start)
    : tokens_(std::move(tokens)), content_(std::move(content)), start_(start) {
  restart();
}

void ReasoningGate::restart() {
  phase_ = start_ == Reasoning::kNone    ? Phase::kContent
           : start_ == Reasoning::kBegun ? Phase::kInside
                                         : Phase::kMayBegin;
  held_.clear();
  num_newline_tokens_ = 0;
}

std::string_view ReasoningGate::text_of(std::int32_t token_id) const {
  const auto& tokens = tokens_->vocabulary.tokens;
  const bool is_known = token_id >= 0 && static_cast<std::size_t>(token_id) < tokens.size();
  return is_known ? std::string_view(tokens[static_cast<std::size_t>(token_id)])
                  : std::string_view();
}

Status ReasoningGate::fill_mask(std::span<std::uint32_t> mask) {
  if (mask.size() != tokens_->inside.size()) {
    return {StatusCode::kInternal,
            fmt::format("a mask of {} words, want {}", mask.size(), tokens_->inside.size())};
  }
  if (phase_ == Phase::kInside) {
    allow_reasoning(mask);
    return {};
  }
  HALFBYTE_RETURN_IF_ERROR(content_->fill_mask(mask));
  if (phase_ == Phase::kMayBegin) {
    for (const std::int32_t id : tokens_->opens)
      allow(mask, id);
  }
  if (phase_ == Phase::kAfter && num_newline_tokens_ < kMaxNewlineTokens) {
    for (const std::int32_t id : tokens_->newlines)
      allow(mask, id);
  }
  return {};
}

// With part of the marker held, a token that completes it begins with the marker's rest.
void ReasoningGate::allow_reasoning(std::span<std::uint32_t> mask) const {
  std::ranges::copy(tokens_->inside, mask.begin());
  if (held_.empty()) return;
  const std::string_view rest = kReasoningClose.substr(held_.size());
  for (const std::int32_t id : tokens_->closers) {
    if (text_of(id).starts_with(rest)) forbid(mask, id);
  }
}

// Whether a token belongs to what comes before the content.
bool ReasoningGate::takes(std::int32_t token_id) const {
  const std::string_view text = text_of(token_id);
  switch (phase_) {
    case Phase::kMayBegin:
      return text == kReasoningOpen;
    case Phase::kInside:
      return true;
    case Phase::kAfter:
      return num_newline_tokens_ < kMaxNewlineTokens && !text.empty() && is_all_newlines(text);
    case Phase::kContent:
      return false;
  }
  return false;
}

Status ReasoningGate::accept(std::int32_t token_id) {
  if (takes(token_id)) {
    HALFBYTE_RETURN_IF_ERROR(take(token_id));
    own_tokens_.push_back(token_id);
    return {};
  }
  HALFBYTE_RETURN_IF_ERROR(content_->accept(token_id));
  phase_ = Phase::kContent;
  ++num_content_tokens_;
  return {};
}

Status ReasoningGate::take(std::int32_t token_id) {
  switch (phase_) {
    case Phase::kMayBegin:
      phase_ = Phase::kInside;
      return {};
    case Phase::kInside:
      return take_reasoning(text_of(token_id));
    case Phase::kAfter:
      ++num_newline_tokens_;
      return {};
    case Phase::kContent:
      break;
  }
  return {};
}

Status ReasoningGate::take_reasoning(std::string_view text) {
  const std::string tail = held_ + std::string(text);
  if (text.empty() || closes_and_goes_on(tail)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("a token of {} bytes is no part of the reasoning", text.size())};
  }
  if (tail.find(kReasoningClose) != std::string::npos) {
    phase_ = Phase::kAfter;
    held_.clear();
    return {};
  }
  held_ = tail.substr(tail.size() - num_held_for(tail, kReasoningClose));
  return {};
}

void ReasoningGate::rollback(int num_tokens) {
  const int from_content = std::min(num_tokens, num_content_tokens_);
  content_->rollback(from_content);
  num_content_tokens_ -= from_content;
  const auto from_own =
      std::min(static_cast<std::size_t>(num_tokens - from_content), own_tokens_.size());
  own_tokens_.resize(own_tokens_.size() - from_own);
  if (num_content_tokens_ > 0) return;
  restart();
  for (const std::int32_t token_id : own_tokens_) {
    (void)take(token_id);  // it was taken before, from the same phase
  }
}

}  // namespace halfbyte
