// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/chat/completions.
#include <utility>

#include "server/api_format.h"
#include "server/logprobs.h"
#include "server/openai_writer.h"

namespace halfbyte::server {
namespace {

// A call that begins has all of itself, one that goes on more of its arguments.
Json describe(const CallDelta& call) {
  if (!begins(call)) return {{"function", {{"arguments", call.arguments}}}};
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

class ChatWriter : public OpenAiWriter {
 public:
  using OpenAiWriter::OpenAiWriter;

  std::string first_event(const Place& place) override {
    Json choice = delta(place.choice_idx, {{"role", "assistant"}, {"content", ""}});
    add_prompt_ids(place.choice, choice);
    Tokens none;
    return chunk(place, std::move(choice), none);
  }

 private:
  static Json delta(std::size_t choice_idx, Json content) {
    return choice_with(choice_idx, "delta", std::move(content));
  }
  std::string_view object() const override { return "chat.completion"; }
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }
  Json empty_choice(std::size_t choice_idx) const override {
    return delta(choice_idx, Json::object());
  }
  Json logprobs_of(const Tokens& tokens) const override {
    return chat_logprobs(tokens, tokenizer());
  }
  std::string reasoning_event(const Place& place,
                              const std::string& text,
                              Tokens& tokens) override {
    return chunk(place, delta(place.choice_idx, {{"reasoning_content", text}}), tokens);
  }
  std::string text_event(const Place& place, const std::string& text, Tokens& tokens) override {
    return chunk(place, delta(place.choice_idx, {{"content", text}}), tokens);
  }
  std::string call_event(const Place& place, const CallDelta& call, Tokens& tokens) override {
    Json one = {{"index", call.index}};
    one.update(describe(call));
    Json calls = {{"tool_calls", Json::array({std::move(one)})}};
    return chunk(place, delta(place.choice_idx, std::move(calls)), tokens);
  }
  Json whole_choice(std::size_t choice_idx, const AnswerPart& answer) const override;
};

Json ChatWriter::whole_choice(std::size_t choice_idx, const AnswerPart& answer) const {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (!answer.calls.empty()) {
    if (answer.content.empty()) message["content"] = nullptr;
    Json calls = Json::array();
    for (const CallDelta& call : answer.calls) {
      calls.push_back(describe(call));
    }
    message["tool_calls"] = std::move(calls);
  }
  return choice_with(choice_idx, "message", std::move(message));
}

class ChatFormat : public ApiFormat {
 public:
  std::string_view id_prefix() const override { return "chatcmpl-"; }
  std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                 const RequestScope& scope) const override {
    return read_chat_request(body, scope);
  }
  std::vector<std::string> unknown_fields(const Json& body) const override {
    return server::unknown_fields(body);
  }
  std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const override {
    return std::make_unique<ChatWriter>(std::move(source));
  }
};

}  // namespace

std::unique_ptr<const ApiFormat> make_chat_format() {
  return std::make_unique<ChatFormat>();
}

}  // namespace halfbyte::server
