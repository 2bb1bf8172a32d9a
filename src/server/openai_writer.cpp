// SPDX-License-Identifier: Apache-2.0
#include "server/openai_writer.h"

#include <utility>

namespace halfbyte::server {
namespace {

Json to_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

void add_end(const Choice& ended, Json& choice) {
  choice["finish_reason"] = ended.finish_reason();
  choice["stop_reason"] = ended.stop_reason();
}

}  // namespace

Json OpenAiWriter::head(std::string_view object) const {
  return {{"id", id()}, {"object", object}, {"created", created()}, {"model", request().model}};
}

Json OpenAiWriter::choice_with(std::size_t choice_idx, std::string_view key, Json value) {
  Json choice = {{"index", choice_idx}};
  choice[std::string(key)] = std::move(value);
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  return choice;
}

void OpenAiWriter::add_tokens(const Tokens& tokens, Json& choice) const {
  if (request().return_token_ids) choice["token_ids"] = ids_of(tokens);
  if (request().sampling.num_logprobs < 0 || tokens.empty()) return;
  choice["logprobs"] = logprobs_of(tokens);
}

void OpenAiWriter::add_prompt_ids(const Choice& choice, Json& json) const {
  if (!request().return_token_ids) return;
  json["prompt_token_ids"] = request().prompts[choice.prompt_idx()];
}

std::string OpenAiWriter::chunk(const Place& place, Json choice, Tokens& tokens) const {
  Json json = head(chunk_object());
  add_tokens(std::exchange(tokens, {}), choice);
  json["choices"] = Json::array({std::move(choice)});
  if (request().include_usage) {
    json["usage"] = request().continuous_usage ? to_json(place.usage) : Json();
  }
  return to_event(json);
}

std::string OpenAiWriter::finish_event(const Place& place, const Tokens& tokens) {
  Json choice = empty_choice(place.choice_idx);
  add_end(place.choice, choice);
  Tokens rest = tokens;
  return chunk(place, std::move(choice), rest);
}

std::string OpenAiWriter::end_events(const Usage& usage) {
  std::string events;
  if (request().include_usage) {
    Json json = head(chunk_object());
    json["choices"] = Json::array();
    json["usage"] = to_json(usage);
    events = to_event(json);
  }
  events += kDoneEvent;
  return events;
}

std::string OpenAiWriter::response(const std::vector<Choice>& choices,
                                   const std::vector<AnswerParts>& answers,
                                   const Usage& usage) {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const AnswerPart answer = merge(answers[i]);
    Json choice = whole_choice(i, answer);
    add_tokens(answer.tokens, choice);
    add_end(choices[i], choice);
    add_prompt_ids(choices[i], choice);
    list.push_back(std::move(choice));
  }
  Json json = head(object());
  json["choices"] = std::move(list);
  json["usage"] = to_json(usage);
  return to_text(json);
}

}  // namespace halfbyte::server
