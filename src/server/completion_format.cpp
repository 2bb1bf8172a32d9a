// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/completions.
#include <utility>

#include "server/api_format.h"
#include "server/logprobs.h"
#include "server/openai_writer.h"

namespace halfbyte::server {
namespace {

class CompletionWriter : public OpenAiWriter {
 public:
  using OpenAiWriter::OpenAiWriter;

  // Nothing but the ids of the prompt, if asked for.
  std::string first_event(const Place& place) override {
    if (!request().return_token_ids) return {};
    Json choice = empty_choice(place.choice_idx);
    add_prompt_ids(place.choice, choice);
    Tokens none;
    return chunk(place, std::move(choice), none);
  }

 private:
  std::string_view object() const override { return "text_completion"; }
  std::string_view chunk_object() const override { return "text_completion"; }
  Json empty_choice(std::size_t choice_idx) const override {
    return choice_with(choice_idx, "text", "");
  }
  Json logprobs_of(const Tokens& tokens) const override {
    return completion_logprobs(tokens, tokenizer(), request().sampling.num_logprobs > 0);
  }
  std::string text_event(const Place& place, const std::string& text, Tokens& tokens) override {
    return chunk(place, choice_with(place.choice_idx, "text", text), tokens);
  }
  Json whole_choice(std::size_t choice_idx, const AnswerPart& answer) const override {
    return choice_with(choice_idx, "text", answer.content);
  }
};

class CompletionFormat : public ApiFormat {
 public:
  std::string_view id_prefix() const override { return "cmpl-"; }
  std::variant<GenerationRequest, ApiError> read(const Json& body,
                                                 const RequestScope& scope) const override {
    return read_completion_request(body, scope);
  }
  std::vector<std::string> unknown_fields(const Json& body) const override {
    return server::unknown_fields(body);
  }
  std::unique_ptr<AnswerWriter> make_writer(AnswerSource source) const override {
    return std::make_unique<CompletionWriter>(std::move(source));
  }
};

}  // namespace

std::unique_ptr<const ApiFormat> make_completion_format() {
  return std::make_unique<CompletionFormat>();
}

}  // namespace halfbyte::server
