// SPDX-License-Identifier: Apache-2.0
#include "server/choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/generation_request.h"
#include "server/logprobs.h"
#include "server/random_id.h"
#include "text/utf8.h"

namespace halfbyte::server {
namespace {

void append_call(std::vector<CallDelta>& calls, CallDelta more) {
  if (!calls.empty() && calls.back().index == more.index) {
    calls.back().arguments += more.arguments;
  } else {
    calls.push_back(std::move(more));
  }
}

}  // namespace

void AnswerPart::append(AnswerPart more) {
  reasoning += more.reasoning;
  content += more.content;
  for (CallDelta& call : more.calls) {
    append_call(calls, std::move(call));
  }
  std::ranges::move(more.tokens, std::back_inserter(tokens));
}

Choice::Choice(const Tokenizer& tokenizer, const GenerationRequest& request, std::size_t prompt_idx)
    : tokenizer_(tokenizer),
      request_(request),
      detokenizer_(tokenizer, request.skip_special_tokens),
      stops_(request.stop, request.include_stop_string),
      prompt_idx_(prompt_idx) {
  if (request.reasoning != Reasoning::kNone) reasoning_.emplace(request.reasoning);
  if (request.tool_calls) tool_calls_.emplace(*request.tool_calls);
  if (request.echo) echo_ = request.prompt_texts[prompt_idx];
  num_characters_ = static_cast<std::int64_t>(count_code_points(echo_));
}

AnswerPart Choice::take(const TokenEvent& event) {
  if (finished()) return {};
  AnswerPart part;
  if (!event.prompt_logprobs.empty()) {
    part.tokens =
        prompt_records(request_.prompts[prompt_idx_], request_.sampling.prompt_logprob_start,
                       event.prompt_logprobs, echo_, tokenizer_);
  }
  part.content = std::exchange(echo_, {});
  num_cached_tokens_ = std::max(num_cached_tokens_, event.cached_tokens);
  if (event.token_id >= 0 && request_.wants_token_records()) {
    part.tokens.push_back({event.token_id, event.logprobs, num_characters_});
  }
  const bool was_reasoning = is_reasoning();
  const std::string text = take_text(event);
  const bool is_end = stops_.matched() || event.finish_reason != FinishReason::kNone;
  split_text(text, is_end, part);
  if (event.token_id >= 0 && (was_reasoning || is_reasoning())) ++num_reasoning_tokens_;
  finish(event);
  return part;
}

// The text that is certain with this event, up to a stop string.
std::string Choice::take_text(const TokenEvent& event) {
  std::string text = take_token(event);
  if (stops_.matched() || event.finish_reason == FinishReason::kNone) return text;
  text += stops_.push(detokenizer_.finish());
  if (!stops_.matched()) text += stops_.finish();
  return text;
}

// Stop strings are looked for in the text of the tokens after the first min_tokens.
std::string Choice::take_token(const TokenEvent& event) {
  if (event.token_id < 0) return {};
  ++num_tokens_;
  if (event.finish_reason == FinishReason::kStop) return {};
  std::string text = detokenizer_.push(event.token_id);
  num_characters_ += static_cast<std::int64_t>(count_code_points(text));
  return num_tokens_ <= request_.sampling.min_new_tokens ? text : stops_.push(text);
}

void Choice::split_text(std::string_view text, bool is_end, AnswerPart& part) {
  if (!reasoning_) return find_calls(text, is_end, part);
  ReasoningParser::Parsed parsed = reasoning_->push(text);
  part.reasoning = std::move(parsed.reasoning);
  if (is_end) {
    ReasoningParser::Parsed rest = reasoning_->finish();
    part.reasoning += rest.reasoning;
    parsed.content += rest.content;
  }
  find_calls(parsed.content, is_end, part);
}

void Choice::find_calls(std::string_view text, bool is_end, AnswerPart& part) {
  if (!tool_calls_) {
    part.content += text;
    return;
  }
  add_calls(tool_calls_->push(text), part);
  if (is_end) add_calls(tool_calls_->finish(), part);
}

void Choice::add_calls(ToolCallParser::Parsed parsed, AnswerPart& part) const {
  part.content += parsed.content;
  for (ToolCallDelta& call : parsed.calls) {
    if (request_.one_tool_call && call.index > 0) break;
    std::string id = call.name.empty() ? std::string() : random_id("call_");
    append_call(part.calls,
                {call.index, std::move(id), std::move(call.name), std::move(call.arguments)});
  }
}

// A call whose arguments were cut off is nothing to act on.
bool Choice::ends_with_calls() const {
  if (!tool_calls_ || tool_calls_->num_calls() == 0) return false;
  const std::size_t wanted = request_.one_tool_call ? 1 : tool_calls_->num_calls();
  return tool_calls_->num_whole_calls() >= wanted;
}

void Choice::finish(const TokenEvent& event) {
  if (stops_.matched()) {
    finish_reason_ = "stop";
    stop_reason_ = *stops_.matched();
    return;
  }
  if (request_.one_tool_call && tool_calls_ && tool_calls_->num_ended_calls() > 0) {
    finish_reason_ = ends_with_calls() ? "tool_calls" : "stop";
    return;
  }
  switch (event.finish_reason) {
    case FinishReason::kNone:
      return;
    case FinishReason::kStop:
      finish_reason_ = ends_with_calls() ? "tool_calls" : "stop";
      if (std::ranges::count(request_.sampling.stop_token_ids, event.token_id) > 0) {
        stop_reason_ = event.token_id;
      }
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
