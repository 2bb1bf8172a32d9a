// SPDX-License-Identifier: Apache-2.0
//
// A known answer through the writer of a format, streamed and whole.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_FORMAT_FIXTURE_H_
#define HALFBYTE_TESTS_UNIT_SERVER_FORMAT_FIXTURE_H_

#include "server/api_format.h"
#include "unit/server/token_events.h"

namespace halfbyte::server {

inline constexpr std::int64_t kContext = 2048;

inline RequestScope scope() {
  return scope_of(model_text(), kContext);
}

struct Written {
  std::string stream;
  Json whole;
};

// As a Generation with one choice does it.
class Writing {
 public:
  Writing(const ApiFormat& format, const GenerationRequest& request)
      : streamed_(format.make_writer({request, tokenizer(), "id_abcdefghijklmnopqrstuvwx", 5})),
        whole_(format.make_writer({request, tokenizer(), "id_abcdefghijklmnopqrstuvwx", 5})) {
    choices_.emplace_back(tokenizer(), request, 0);
    written_.stream = streamed_->begin();
    whole_->begin();
  }

  Written run(const std::vector<TokenEvent>& events) {
    for (const TokenEvent& event : events) {
      take(event);
      if (choices_[0].finished()) break;
    }
    written_.stream += streamed_->finish_event(place(), unsent_);
    written_.stream += streamed_->end_events(usage_);
    written_.whole = Json::parse(whole_->response(choices_, {parts_}, usage_));
    return std::move(written_);
  }

 private:
  AnswerWriter::Place place() const { return {0, choices_[0], usage_}; }

  void take(const TokenEvent& event) {
    const bool is_first = choices_[0].num_tokens() == 0;
    AnswerPart part = choices_[0].take(event);
    usage_.prompt_tokens = 7;
    usage_.completion_tokens = choices_[0].num_tokens();
    usage_.reasoning_tokens = choices_[0].num_reasoning_tokens();
    append(part, parts_);
    if (is_first) written_.stream += streamed_->first_event(place());
    written_.stream += streamed_->part_events(place(), std::move(part), unsent_);
  }

  const std::unique_ptr<AnswerWriter> streamed_;
  const std::unique_ptr<AnswerWriter> whole_;
  std::vector<Choice> choices_;
  Usage usage_;
  AnswerParts parts_;
  AnswerWriter::Tokens unsent_;
  Written written_;
};

inline Written write(const ApiFormat& format,
                     const GenerationRequest& request,
                     const std::string& text,
                     FinishReason reason) {
  return Writing(format, request).run(events_of(text, reason));
}

// The events of a stream whose events have a name, which is their type.
inline std::vector<Json> typed_events_of(std::string_view body) {
  std::vector<Json> events;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    const std::string_view event = body.substr(0, end);
    body.remove_prefix(std::min(end, body.size() - 2) + 2);
    const std::size_t line = event.find('\n');
    EXPECT_TRUE(event.starts_with("event: ")) << event;
    EXPECT_EQ(event.substr(line + 1, 6), "data: ") << event;
    events.push_back(Json::parse(event.substr(line + 7)));
    EXPECT_EQ(events.back()["type"], std::string(event.substr(7, line - 7)));
  }
  return events;
}

inline std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events)
    types.push_back(event["type"].get<std::string>());
  return types;
}

// Reasoning, text, a call in pieces, text and a call.
inline const std::string kMixedAnswer =
    "<think>Hm.</think>Sure.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 2, \"a\": "
    "1}}\n"
    "</tool_call>\nAnd:\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";

inline void search_for_everything(GenerationRequest& request) {
  request.reasoning = Reasoning::kMayBegin;
  request.tool_calls = ToolCallFormat::kQwen3;
}

inline GenerationRequest accepted(const ApiFormat& format, const Json& body) {
  auto result = format.read(body, scope());
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << to_text(body) << ": " << error->param << ": " << error->message;
    return {};
  }
  return std::get<GenerationRequest>(std::move(result));
}

inline GenerationRequest accepted(const ApiFormat& format, const char* body) {
  return accepted(format, Json::parse(body));
}

struct FormatRefusal {
  const char* body;
  const char* param;
  const char* code = "";
};

// Each is refused with 400, and names its field in the message too.
inline void expect_refusals(const ApiFormat& format, const std::vector<FormatRefusal>& table) {
  for (const auto& [body, param, code] : table) {
    const auto result = format.read(Json::parse(body), scope());
    const auto* error = std::get_if<ApiError>(&result);
    if (error == nullptr) {
      ADD_FAILURE() << "accepted: " << body;
      continue;
    }
    EXPECT_EQ(error->status, 400) << body;
    EXPECT_EQ(error->param, param) << body << ": " << error->message;
    EXPECT_EQ(error->code, code) << body << ": " << error->message;
  }
}

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_FORMAT_FIXTURE_H_
