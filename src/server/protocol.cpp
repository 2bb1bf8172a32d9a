// SPDX-License-Identifier: Apache-2.0
#include "server/protocol.h"

#include "server/logprobs.h"

namespace halfbyte::server {
namespace {

Json to_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

void append_random(std::string& text, std::uint64_t random) {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  for (int i = 0; i < 12; ++i, random >>= 5) {
    text += kAlphabet[random & 31];
  }
}

// A call, or the first of its pieces, with its id and name; of the others the arguments alone.
Json to_json(const CallDelta& call) {
  if (call.id.empty()) return {{"function", {{"arguments", call.arguments}}}};
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json ids_of(const AnswerWriter::Tokens& tokens) {
  Json ids = Json::array();
  for (const TokenRecord& token : tokens) {
    ids.push_back(token.id);
  }
  return ids;
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

Json AnswerWriter::head(std::string_view object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", request_.model}};
}

Json AnswerWriter::choice_head(std::size_t choice_idx, std::string_view key, Json value) const {
  Json choice = {{"index", choice_idx}};
  choice[std::string(key)] = std::move(value);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  return choice;
}

void AnswerWriter::add_tokens(const Tokens& tokens, Json& choice) const {
  if (request_.return_token_ids) choice["token_ids"] = ids_of(tokens);
  const int num_logprobs = request_.sampling.num_logprobs;
  if (num_logprobs < 0 || tokens.empty()) return;
  choice["logprobs"] = request_.is_chat ? chat_logprobs(tokens, tokenizer_)
                                        : completion_logprobs(tokens, tokenizer_, num_logprobs > 0);
}

void AnswerWriter::add_end(const Choice& ended, Json& choice) const {
  choice["finish_reason"] = ended.finish_reason();
  choice["stop_reason"] = ended.stop_reason();
}

// ---------------------------------------------------------------- events

std::string AnswerWriter::chunk(Json choice, const Tokens& tokens, const Usage& usage) const {
  Json json = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  add_tokens(tokens, choice);
  json["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) {
    json["usage"] = request_.continuous_usage ? to_json(usage) : Json();
  }
  return to_event(json);
}

std::string AnswerWriter::first_event(std::size_t choice_idx,
                                      const Choice& choice,
                                      const Usage& usage) const {
  if (!request_.is_chat && !request_.return_token_ids) return {};
  Json json = request_.is_chat
                  ? choice_head(choice_idx, "delta", {{"role", "assistant"}, {"content", ""}})
                  : choice_head(choice_idx, "text", "");
  if (request_.return_token_ids) {
    json["prompt_token_ids"] = request_.prompts[choice.prompt_idx()];
  }
  return chunk(std::move(json), {}, usage);
}

std::string AnswerWriter::reasoning_event(std::size_t choice_idx,
                                          const std::string& text,
                                          const Tokens& tokens,
                                          const Usage& usage) const {
  return chunk(choice_head(choice_idx, "delta", {{"reasoning_content", text}}), tokens, usage);
}

std::string AnswerWriter::text_event(std::size_t choice_idx,
                                     const std::string& text,
                                     const Tokens& tokens,
                                     const Usage& usage) const {
  Json json = request_.is_chat ? choice_head(choice_idx, "delta", {{"content", text}})
                               : choice_head(choice_idx, "text", text);
  return chunk(std::move(json), tokens, usage);
}

std::string AnswerWriter::call_event(std::size_t choice_idx,
                                     const CallDelta& call,
                                     const Tokens& tokens,
                                     const Usage& usage) const {
  Json delta = {{"index", call.index}};
  delta.update(to_json(call));
  Json calls = {{"tool_calls", Json::array({std::move(delta)})}};
  return chunk(choice_head(choice_idx, "delta", std::move(calls)), tokens, usage);
}

std::string AnswerWriter::finish_event(std::size_t choice_idx,
                                       const Choice& choice,
                                       const Tokens& tokens,
                                       const Usage& usage) const {
  Json json = request_.is_chat ? choice_head(choice_idx, "delta", Json::object())
                               : choice_head(choice_idx, "text", "");
  add_end(choice, json);
  return chunk(std::move(json), tokens, usage);
}

std::string AnswerWriter::end_events(const Usage& usage) const {
  std::string events;
  if (request_.include_usage) {
    Json json = head(request_.is_chat ? "chat.completion.chunk" : "text_completion");
    json["choices"] = Json::array();
    json["usage"] = to_json(usage);
    events = to_event(json);
  }
  events += kDoneEvent;
  return events;
}

// ---------------------------------------------------------------- whole answers

Json AnswerWriter::message(const AnswerPart& answer) const {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (answer.calls.empty()) return message;
  if (answer.content.empty()) message["content"] = nullptr;
  Json calls = Json::array();
  for (const CallDelta& call : answer.calls) {
    calls.push_back(to_json(call));
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

Json AnswerWriter::whole_choice(std::size_t choice_idx,
                                const Choice& choice,
                                const AnswerPart& answer) const {
  Json json = request_.is_chat ? choice_head(choice_idx, "message", message(answer))
                               : choice_head(choice_idx, "text", answer.content);
  add_tokens(answer.tokens, json);
  add_end(choice, json);
  if (request_.return_token_ids) {
    json["prompt_token_ids"] = request_.prompts[choice.prompt_idx()];
  }
  return json;
}

std::string AnswerWriter::response(const std::vector<Choice>& choices,
                                   const std::vector<AnswerPart>& answers,
                                   const Usage& usage) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    list.push_back(whole_choice(i, choices[i], answers[i]));
  }
  Json json = head(request_.is_chat ? "chat.completion" : "text_completion");
  json["choices"] = std::move(list);
  json["usage"] = to_json(usage);
  return to_text(json);
}

}  // namespace halfbyte::server
