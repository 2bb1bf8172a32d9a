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
  std::int64_t cached_tokens = 0;     // of the prompts
  std::int64_t reasoning_tokens = 0;  // of the answers
};

/// "data: ...\n\n"
std::string to_event(const Json& json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

/// "chatcmpl-" or "cmpl-" and 24 random characters.
std::string new_response_id(bool is_chat, std::uint64_t random_high, std::uint64_t random_low);

/// Writes the parts of one answer. A view: `request` and `tokenizer` must outlive it.
class AnswerWriter {
 public:
  using Tokens = std::vector<TokenRecord>;  // those that an event carries

  AnswerWriter(const GenerationRequest& request,
               const Tokenizer& tokenizer,
               std::string id,
               std::int64_t created)
      : request_(request), tokenizer_(tokenizer), id_(std::move(id)), created_(created) {}

  /// What comes before a choice's text: its role, its prompt's ids if asked for; or nothing.
  std::string first_event(std::size_t choice_idx, const Choice& choice, const Usage& usage) const;
  std::string reasoning_event(std::size_t choice_idx,
                              const std::string& text,
                              const Tokens& tokens,
                              const Usage& usage) const;
  std::string text_event(std::size_t choice_idx,
                         const std::string& text,
                         const Tokens& tokens,
                         const Usage& usage) const;
  std::string call_event(std::size_t choice_idx,
                         const CallDelta& call,
                         const Tokens& tokens,
                         const Usage& usage) const;
  std::string finish_event(std::size_t choice_idx,
                           const Choice& choice,
                           const Tokens& tokens,
                           const Usage& usage) const;
  /// What comes after all choices: usage if asked for, and [DONE].
  std::string end_events(const Usage& usage) const;

  /// The whole answer; `answers` has one entry per choice.
  std::string response(const std::vector<Choice>& choices,
                       const std::vector<AnswerPart>& answers,
                       const Usage& usage) const;
  const std::string& id() const { return id_; }

 private:
  Json head(std::string_view object) const;
  Json choice_head(std::size_t choice_idx, std::string_view key, Json value) const;
  void add_tokens(const Tokens& tokens, Json& choice) const;
  void add_end(const Choice& ended, Json& choice) const;
  std::string chunk(Json choice, const Tokens& tokens, const Usage& usage) const;
  Json message(const AnswerPart& answer) const;
  Json whole_choice(std::size_t choice_idx, const Choice& choice, const AnswerPart& answer) const;

  const GenerationRequest& request_;
  const Tokenizer& tokenizer_;
  std::string id_;
  std::int64_t created_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_PROTOCOL_H_
