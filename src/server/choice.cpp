// SPDX-License-Identifier: Apache-2.0
#include "server/choice.h"

#include <algorithm>
#include <utility>

#include "server/generation_request.h"

namespace halfbyte::server {

Choice::Choice(const Tokenizer& tokenizer, const GenerationRequest& request, std::size_t prompt_idx)
    : detokenizer_(tokenizer, request.skip_special_tokens),
      stops_(request.stop, request.include_stop_string),
      stop_token_ids_(request.sampling.stop_token_ids),
      prompt_idx_(prompt_idx) {
  if (request.finds_tool_calls) tool_calls_.emplace();
}

ToolCallParser::Parsed Choice::take(const TokenEvent& event) {
  if (finished()) return {};
  std::string text = take_token(event);
  if (!stops_.matched() && event.finish_reason != FinishReason::kNone) {
    text += stops_.push(detokenizer_.finish());
    if (!stops_.matched()) text += stops_.finish();
  }
  const bool is_end = stops_.matched() || event.finish_reason != FinishReason::kNone;
  ToolCallParser::Parsed parsed = find_calls(std::move(text), is_end);
  finish(event);
  return parsed;
}

ToolCallParser::Parsed Choice::find_calls(std::string text, bool is_end) {
  if (!tool_calls_) return {std::move(text), {}};
  ToolCallParser::Parsed parsed = tool_calls_->push(text);
  if (is_end) parsed.content += tool_calls_->finish().content;
  num_calls_ += parsed.calls.size();
  return parsed;
}

std::string Choice::take_token(const TokenEvent& event) {
  if (event.token_id < 0) return {};
  ++num_tokens_;
  const bool ends_it = event.finish_reason == FinishReason::kStop;
  return ends_it ? std::string() : stops_.push(detokenizer_.push(event.token_id));
}

void Choice::finish(const TokenEvent& event) {
  if (stops_.matched()) {
    finish_reason_ = "stop";
    stop_reason_ = *stops_.matched();
    return;
  }
  switch (event.finish_reason) {
    case FinishReason::kNone:
      return;
    case FinishReason::kStop:
      finish_reason_ = num_calls_ > 0 ? "tool_calls" : "stop";
      if (std::ranges::count(stop_token_ids_, event.token_id) > 0) stop_reason_ = event.token_id;
      return;
    case FinishReason::kLength:
      finish_reason_ = "length";
      return;
    case FinishReason::kCancelled:
      finish_reason_ = "abort";
      return;
    case FinishReason::kError:
      finish_reason_ = "error";
      return;
  }
}

}  // namespace halfbyte::server
