// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_CHOICE_H_
#define HALFBYTE_SERVER_CHOICE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halfbyte/engine.h"
#include "server/json.h"
#include "server/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace halfbyte::server {

struct GenerationRequest;

/// One sequence's tokens on their way to text: detokenised, cut at stop strings, searched for tool
/// calls if the request has tools, ended for a reason. What take() returns, one after the other, is
/// the answer. Thread rule: one thread.
class Choice {
 public:
  Choice(const Tokenizer& tokenizer, const GenerationRequest& request, std::size_t prompt_idx);

  /// What this event adds. The token that ends a sequence (end of text, stop id) is counted and not
  /// shown. No effect once finished.
  ToolCallParser::Parsed take(const TokenEvent& event);

  std::size_t prompt_idx() const { return prompt_idx_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::size_t num_calls() const { return num_calls_; }
  bool finished() const { return !finish_reason_.empty(); }
  /// "stop", "length", "tool_calls", "abort", "error"; empty while it goes on.
  const std::string& finish_reason() const { return finish_reason_; }
  /// The string or id that stopped it; null for the end of text.
  const Json& stop_reason() const { return stop_reason_; }

 private:
  std::string take_token(const TokenEvent& event);
  ToolCallParser::Parsed find_calls(std::string text, bool is_end);
  void finish(const TokenEvent& event);

  Detokenizer detokenizer_;
  StopMatcher stops_;
  std::optional<ToolCallParser> tool_calls_;  // with tools
  std::size_t num_calls_ = 0;
  const std::vector<std::int32_t>& stop_token_ids_;
  std::size_t prompt_idx_;
  std::int64_t num_tokens_ = 0;
  std::string finish_reason_;
  Json stop_reason_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_CHOICE_H_
