// SPDX-License-Identifier: Apache-2.0
//
// Responses and events of the OpenAI API, as text.
#ifndef HALFBYTE_SERVER_PROTOCOL_H_
#define HALFBYTE_SERVER_PROTOCOL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/choice.h"
#include "server/generation_request.h"

namespace halfbyte::server {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
};

/// "data: ...\n\n"
std::string to_event(const Json& json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

/// "chatcmpl-" or "cmpl-" and 24 random characters.
std::string new_response_id(bool is_chat, std::uint64_t random_high, std::uint64_t random_low);

/// Writes the parts of one answer. A view: `request` must outlive it.
class AnswerWriter {
 public:
  AnswerWriter(const GenerationRequest& request, std::string id, std::int64_t created)
      : request_(request), id_(std::move(id)), created_(created) {}

  /// Events. The first of a choice has the role (chat only).
  std::string role_event(std::size_t choice_idx, const Usage& usage) const;
  std::string text_event(std::size_t choice_idx, const std::string& text, const Usage& usage) const;
  std::string call_event(std::size_t choice_idx,
                         std::size_t call_idx,
                         const ToolCall& call,
                         const Usage& usage) const;
  std::string finish_event(std::size_t choice_idx, const Choice& choice, const Usage& usage) const;
  /// What comes after all choices: usage if asked for, and [DONE].
  std::string end_events(const Usage& usage) const;

  /// The whole answer; `answers` has one entry per choice.
  std::string response(const std::vector<Choice>& choices,
                       const std::vector<ToolCallParser::Parsed>& answers,
                       const Usage& usage) const;
  const std::string& id() const { return id_; }

 private:
  Json head(std::string_view object) const;
  std::string chunk(Json choice, const Usage& usage) const;
  Json describe(std::size_t choice_idx, std::size_t call_idx, const ToolCall& call) const;
  Json message(std::size_t choice_idx, const ToolCallParser::Parsed& answer) const;
  std::string_view chunk_object() const;

  const GenerationRequest& request_;
  std::string id_;
  std::int64_t created_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_PROTOCOL_H_
