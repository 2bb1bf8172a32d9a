// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_CHOICE_H_
#define HALFBYTE_SERVER_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"
#include "server/stop_matcher.h"
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace halfbyte::server {

struct GenerationRequest;

/// A token of an answer, for requests that ask for ids or logprobs; or, before the first one, of a
/// prompt whose logprobs were asked for.
struct TokenRecord {
  std::int32_t id = 0;
  std::vector<TokenLogprob> logprobs = {};  // its own first; empty unless asked for
  std::int64_t text_offset = 0;             // characters of the answer's text before its own
  bool of_prompt = false;
};

/// What an event adds to a tool call.
struct CallDelta {
  std::size_t index = 0;       // of the call in the answer
  std::string id = {};         // "call_" and 24 random characters; in the call's first delta alone
  std::string name = {};       // the same; never empty there
  std::string arguments = {};  // JSON, a piece of it; see ToolCallParser
};

/// What an event adds to an answer.
struct AnswerPart {
  std::string reasoning = {};
  std::string content = {};
  std::vector<CallDelta> calls = {};  // one for each call at most, of a whole answer whole calls
  std::vector<TokenRecord> tokens = {};

  void append(AnswerPart more);
};

/// One sequence's tokens on their way to text: detokenised, cut at stop strings, searched for
/// reasoning and tool calls if the request is, ended for a reason. What take() returns, one after
/// the other, is the answer. Thread rule: one thread.
class Choice {
 public:
  Choice(const Tokenizer& tokenizer, const GenerationRequest& request, std::size_t prompt_idx);

  /// What this event adds. The token that ends a sequence (end of text, stop id) is counted and not
  /// shown. No effect once finished.
  AnswerPart take(const TokenEvent& event);

  std::size_t prompt_idx() const { return prompt_idx_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }
  std::int64_t num_cached_tokens() const { return num_cached_tokens_; }  // of the prompt
  bool finished() const { return !finish_reason_.empty(); }
  /// "stop", "length", "tool_calls", "abort", "error"; empty while it goes on. "tool_calls" only
  /// when each call's arguments end.
  const std::string& finish_reason() const { return finish_reason_; }
  /// The string or id that stopped it; null for the end of text.
  const Json& stop_reason() const { return stop_reason_; }

 private:
  std::string take_text(const TokenEvent& event);
  std::string take_token(const TokenEvent& event);
  void split_text(std::string_view text, bool is_end, AnswerPart& part);
  void find_calls(std::string_view text, bool is_end, AnswerPart& part);
  void add_calls(ToolCallParser::Parsed parsed, AnswerPart& part) const;
  bool ends_with_calls() const;
  bool is_reasoning() const { return reasoning_ && reasoning_->is_inside(); }
  void finish(const TokenEvent& event);

  const Tokenizer& tokenizer_;
  const GenerationRequest& request_;
  Detokenizer detokenizer_;
  StopMatcher stops_;
  std::optional<ReasoningParser> reasoning_;
  std::optional<ToolCallParser> tool_calls_;
  std::size_t prompt_idx_;
  std::string echo_;  // the prompt, until it is given
  std::int64_t num_tokens_ = 0;
  std::int64_t num_reasoning_tokens_ = 0;
  std::int64_t num_cached_tokens_ = 0;
  std::int64_t num_characters_ = 0;  // of the text, before stop strings cut it
  std::string finish_reason_;
  Json stop_reason_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_CHOICE_H_
