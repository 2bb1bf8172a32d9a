// SPDX-License-Identifier: Apache-2.0
#include "server/protocol.h"

#include <fmt/format.h>

namespace halfbyte::server {
namespace {

Json to_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", 0}}}};
}

void append_random(std::string& text, std::uint64_t random) {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  for (int i = 0; i < 12; ++i, random >>= 5) {
    text += kAlphabet[random & 31];
  }
}

}  // namespace

std::string to_event(const Json& json) {
  return "data: " + to_text(json) + "\n\n";
}

std::string new_response_id(bool is_chat, std::uint64_t random_high, std::uint64_t random_low) {
  std::string id = is_chat ? "chatcmpl-" : "cmpl-";
  append_random(id, random_high);
  append_random(id, random_low);
  return id;
}

std::string_view AnswerWriter::chunk_object() const {
  return request_.is_chat ? "chat.completion.chunk" : "text_completion";
}

Json AnswerWriter::head(std::string_view object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", request_.model}};
}

std::string AnswerWriter::chunk(Json choice, const Usage& usage) const {
  Json json = head(chunk_object());
  json["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) {
    json["usage"] = request_.continuous_usage ? to_json(usage) : Json();
  }
  return to_event(json);
}

std::string AnswerWriter::role_event(std::size_t choice_idx, const Usage& usage) const {
  if (!request_.is_chat) return {};
  return chunk({{"index", choice_idx},
                {"delta", {{"role", "assistant"}, {"content", ""}}},
                {"logprobs", nullptr},
                {"finish_reason", nullptr}},
               usage);
}

std::string AnswerWriter::text_event(std::size_t choice_idx,
                                     const std::string& text,
                                     const Usage& usage) const {
  Json choice = {{"index", choice_idx}};
  if (request_.is_chat) {
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  return chunk(std::move(choice), usage);
}

// The id is the answer's, with the call's place at the end.
Json AnswerWriter::describe(std::size_t choice_idx,
                            std::size_t call_idx,
                            const ToolCall& call) const {
  const std::string random = id_.substr(id_.find('-') + 1, 18);
  return {{"id", fmt::format("call_{}{:02x}{:04x}", random, choice_idx, call_idx)},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

std::string AnswerWriter::call_event(std::size_t choice_idx,
                                     std::size_t call_idx,
                                     const ToolCall& call,
                                     const Usage& usage) const {
  Json delta = {{"index", call_idx}};
  delta.update(describe(choice_idx, call_idx, call));
  return chunk({{"index", choice_idx},
                {"delta", {{"tool_calls", Json::array({std::move(delta)})}}},
                {"logprobs", nullptr},
                {"finish_reason", nullptr}},
               usage);
}

Json AnswerWriter::message(std::size_t choice_idx, const ToolCallParser::Parsed& answer) const {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (answer.calls.empty()) return message;
  if (answer.content.empty()) message["content"] = nullptr;
  Json calls = Json::array();
  for (const ToolCall& call : answer.calls) {
    calls.push_back(describe(choice_idx, calls.size(), call));
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

std::string AnswerWriter::finish_event(std::size_t choice_idx,
                                       const Choice& choice,
                                       const Usage& usage) const {
  Json json = {{"index", choice_idx}};
  if (request_.is_chat) {
    json["delta"] = Json::object();
  } else {
    json["text"] = "";
  }
  json["logprobs"] = nullptr;
  json["finish_reason"] = choice.finish_reason();
  json["stop_reason"] = choice.stop_reason();
  return chunk(std::move(json), usage);
}

std::string AnswerWriter::end_events(const Usage& usage) const {
  std::string events;
  if (request_.include_usage) {
    Json json = head(chunk_object());
    json["choices"] = Json::array();
    json["usage"] = to_json(usage);
    events = to_event(json);
  }
  events += kDoneEvent;
  return events;
}

std::string AnswerWriter::response(const std::vector<Choice>& choices,
                                   const std::vector<ToolCallParser::Parsed>& answers,
                                   const Usage& usage) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    if (request_.is_chat) {
      choice["message"] = message(i, answers[i]);
    } else {
      choice["text"] = answers[i].content;
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = choices[i].finish_reason();
    choice["stop_reason"] = choices[i].stop_reason();
    list.push_back(std::move(choice));
  }
  Json json = head(request_.is_chat ? "chat.completion" : "text_completion");
  json["choices"] = std::move(list);
  json["usage"] = to_json(usage);
  return to_text(json);
}

}  // namespace halfbyte::server
