// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_OPENAI_WRITER_H_
#define HALFBYTE_SERVER_OPENAI_WRITER_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/protocol.h"

namespace halfbyte::server {

/// What chats and completions share: choices with logprobs and a finish reason.
class OpenAiWriter : public AnswerWriter {
 public:
  using AnswerWriter::AnswerWriter;
  std::string finish_event(const Place& place, const Tokens& tokens) override;
  /// Usage if asked for, and [DONE].
  std::string end_events(const Usage& usage) override;
  std::string response(const std::vector<Choice>& choices,
                       const std::vector<AnswerParts>& answers,
                       const Usage& usage) override;

 protected:
  /// {index, KEY: value, logprobs: null, finish_reason: null}
  static Json choice_with(std::size_t choice_idx, std::string_view key, Json value);
  /// The event of a choice, which takes the tokens.
  std::string chunk(const Place& place, Json choice, Tokens& tokens) const;
  void add_prompt_ids(const Choice& choice, Json& json) const;

 private:
  virtual std::string_view object() const = 0;
  virtual std::string_view chunk_object() const = 0;
  virtual Json empty_choice(std::size_t choice_idx) const = 0;  // in a stream, without text
  virtual Json whole_choice(std::size_t choice_idx, const AnswerPart& answer) const = 0;
  virtual Json logprobs_of(const Tokens& tokens) const = 0;

  Json head(std::string_view object) const;
  void add_tokens(const Tokens& tokens, Json& choice) const;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_OPENAI_WRITER_H_
