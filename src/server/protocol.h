// SPDX-License-Identifier: Apache-2.0
//
// What the formats of answers have in common: events, ids, and what a generation writes through.
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
/// "event: TYPE\ndata: ...\n\n", where TYPE is the member `type`.
std::string to_typed_event(const Json& json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

/// Whether this is the first that an answer has of a call.
inline bool begins(const CallDelta& call) {
  return !call.id.empty();
}

/// Ids of an answer's tokens: those of its prompt are none.
Json ids_of(const std::vector<TokenRecord>& tokens);

/// An answer, or some of it, in the order in which it was written. Within a part: reasoning, more
/// of a call that an earlier part began, content, calls that begin.
using AnswerParts = std::vector<AnswerPart>;
/// Adds to the last part what is of its kind. Tokens without text stand before the text that they
/// became part of.
void append(AnswerPart more, AnswerParts& answer);
/// All of it in one, where that order no longer matters.
AnswerPart merge(const AnswerParts& answer);

/// What a writer writes about. A view: `request` and `tokenizer` must outlive it.
struct AnswerSource {
  const GenerationRequest& request;
  const Tokenizer& tokenizer;
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
};

/// Writes one answer in its format: event by event, or whole. Thread rule: one thread.
class AnswerWriter {
 public:
  using Tokens = std::vector<TokenRecord>;  // those that an event carries
  /// What an event is about.
  struct Place {
    std::size_t choice_idx = 0;
    const Choice& choice;
    const Usage& usage;  // so far
  };

  explicit AnswerWriter(AnswerSource source) : source_(std::move(source)) {}
  virtual ~AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;
  const std::string& id() const { return source_.id; }

  /// Called once, when the engine has taken the request: what a stream begins with.
  virtual std::string begin() { return {}; }
  /// With a choice's first token, before its text.
  virtual std::string first_event(const Place& place) = 0;
  /// The events of `part`. `unsent`: tokens that no event has carried yet; those of `part` are
  /// added, and taken by its first event.
  std::string part_events(const Place& place, AnswerPart part, Tokens& unsent);
  /// A choice has ended.
  virtual std::string finish_event(const Place& place, const Tokens& tokens) = 0;
  /// What comes after all choices.
  virtual std::string end_events(const Usage& usage) = 0;
  /// The end of a stream that fails.
  virtual std::string error_events(const ApiError& error);

  /// The whole answer, as a body; `answers` has one entry per choice. Instead of all events.
  virtual std::string response(const std::vector<Choice>& choices,
                               const std::vector<AnswerParts>& answers,
                               const Usage& usage) = 0;
  /// Instead of an answer.
  virtual HttpResponse error_response(const ApiError& error);

 protected:
  const GenerationRequest& request() const { return source_.request; }
  const Tokenizer& tokenizer() const { return source_.tokenizer; }
  std::int64_t created() const { return source_.created; }

 private:
  // What a format has no form for is written as nothing: its requests never ask for it.
  virtual std::string reasoning_event(const Place& place, const std::string& text, Tokens& tokens);
  virtual std::string text_event(const Place& place, const std::string& text, Tokens& tokens) = 0;
  virtual std::string call_event(const Place& place, const CallDelta& call, Tokens& tokens);

  const AnswerSource source_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_PROTOCOL_H_
