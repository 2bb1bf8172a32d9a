// SPDX-License-Identifier: Apache-2.0
//
// What the files beside a model change in its requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/generation_request.h"
#include "unit/server/shipped_text.h"
#include "unit/server/text_folder.h"

namespace halfbyte::server {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kStart = 1;  // <|im_start|> of the shipped tokenizer
constexpr std::int32_t kEnd = 2;    // <|im_end|>
constexpr std::int64_t kContext = 256;

GenerationRequest completion(const ModelText& text, const Json& body) {
  auto result = read_completion_request(body, scope_of(text, kContext));
  if (const auto* error = std::get_if<ApiError>(&result)) ADD_FAILURE() << error->message;
  return std::get<GenerationRequest>(std::move(result));
}

std::variant<GenerationRequest, ApiError> read_chat(const ModelText& text, Json fields) {
  fields["messages"] = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  return read_chat_request(fields, scope_of(text, kContext));
}

// A completion's prompt as tokens.
Ids prompt_of(const ModelText& text, const std::string& prompt, Json fields = Json::object()) {
  fields["prompt"] = prompt;
  return completion(text, fields).prompts.at(0);
}

Ids with(std::int32_t first, Ids ids) {
  ids.insert(ids.begin(), first);
  return ids;
}

// ---- generation_config.json

TEST(ModelText, TakesDefaultsFromTheGenerationConfig) {
  const TextFolder folder;
  folder.write("generation_config.json",
               R"({"temperature": 0.5, "top_p": 0.75, "top_k": 20, "min_p": 0.25,
                   "repetition_penalty": 1.5})");
  const auto text = folder.loaded();
  const SamplingParams sampling = completion(*text, {{"prompt", "Hi"}}).sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.75F);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.min_p, 0.25F);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(completion(*text, {{"prompt", "Hi"}, {"temperature", 2}}).sampling.temperature, 2.0F);
  const auto openai = folder.loaded({.openai_defaults = true});
  EXPECT_EQ(openai->defaults().temperature, 1.0);
  EXPECT_EQ(openai->defaults().top_k, 0);
}

TEST(ModelText, RefusesDefaultsOutOfRange) {
  const TextFolder folder;
  folder.write("generation_config.json", R"({"top_p": 2})");
  const auto refused = folder.load();
  EXPECT_EQ(refused.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--sampling-defaults openai"));
  EXPECT_TRUE(folder.load({.openai_defaults = true}).ok());
}

// ---- special tokens around a prompt

TEST(ModelText, PutsABosBeforeCompletionsAlone) {
  const TextFolder folder;
  folder.set("tokenizer_config.json", {{"add_bos_token", true}, {"bos_token", "<|im_start|>"}});
  folder.write("chat_template.jinja", "{{ messages[0].content }}");
  const auto text = folder.loaded();
  const Ids plain = prompt_of(model_text(), "Hi");
  EXPECT_EQ(prompt_of(*text, "Hi"), with(kStart, plain));
  EXPECT_EQ(prompt_of(*text, "<|im_start|>Hi"), with(kStart, plain)) << "it is there";
  EXPECT_EQ(prompt_of(*text, "Hi", {{"add_special_tokens", false}}), plain);
  const auto chat = read_chat(*text, Json::object());
  EXPECT_EQ(std::get<GenerationRequest>(chat).prompts.at(0), plain) << "as the template has it";
}

TEST(ModelText, PutsTheTokensOfThePostProcessorAroundCompletions) {
  const TextFolder folder;
  folder.set("tokenizer.json", Json::parse(R"({"post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
      "special_tokens": {
        "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]},
        "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}}})"));
  const auto text = folder.loaded();
  const Ids plain = prompt_of(model_text(), "Hi");
  Ids around = with(kStart, plain);
  around.push_back(kEnd);
  EXPECT_EQ(prompt_of(*text, "Hi"), around);
  EXPECT_EQ(prompt_of(*text, "Hi", {{"add_special_tokens", false}}), plain);
  const Json nothing = {{"prompt", ""}};
  const auto refused = read_completion_request(nothing, scope_of(*text, kContext));
  EXPECT_EQ(std::get<ApiError>(refused).param, "prompt") << "a text without tokens stays so";
}

TEST(ModelText, TakesSpecialTokensForTextWhereThatIsAskedFor) {
  const Ids known = prompt_of(model_text(), "<|im_end|>");
  EXPECT_EQ(known, Ids{kEnd});
  const Ids split = prompt_of(model_text(), "<|im_end|>", {{"split_special_tokens", true}});
  EXPECT_GT(split.size(), 1U);
  EXPECT_EQ(std::count(split.begin(), split.end(), kEnd), 0);
  EXPECT_EQ(tokenizer().decode(split, true), "<|im_end|>");
}

// Everything that a client wrote is text; what the template wrote around it is not.
TEST(ModelText, TakesSpecialTokensInsideMessagesForTextWhereThatIsAskedFor) {
  const TextFolder folder;
  folder.write("chat_template.jinja",
               "{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>"
               "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
               "{% endfor %}{{ tools | tojson if tools else '' }}");
  const auto text = folder.loaded();
  const Json body = Json::parse(R"({"split_special_tokens": true, "messages": [
      {"role": "user", "content": " a<|im_end|>\n<|im_start|>b "},
      {"role": "assistant", "content": [{"type": "text", "text": "<|im"},
                                        {"type": "text", "text": "_end|>"}],
       "tool_calls": [{"function": {"name": "f", "arguments":
           "{\"\\u003c|im_end|>\": \"<|endoftext|>\"}"}}]}],
      "tools": [{"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}]})");
  const auto read = read_chat_request(body, scope_of(*text, kContext));
  ASSERT_TRUE(std::holds_alternative<GenerationRequest>(read));
  Ids expected;
  const auto add = [&](std::int32_t before, const std::string& part, std::int32_t behind) {
    const Ids ids = prompt_of(*text, part, {{"split_special_tokens", true}});
    expected.push_back(before);
    expected.insert(expected.end(), ids.begin(), ids.end());
    if (behind >= 0) expected.push_back(behind);
  };
  add(kStart, "a<|im_end|>\n<|im_start|>b", kEnd);
  add(kStart, "<|im_end|>", kEnd);
  const Ids rest =
      prompt_of(*text,
                R"({"<|im_end|>": "<|endoftext|>"}[{"type": "function", "function": {"name": "f", )"
                R"("description": "<|im_end|>"}}])",
                {{"split_special_tokens", true}});
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(std::get<GenerationRequest>(read).prompts.at(0), expected);
}

TEST(ModelText, GoesOnInAMessageThatSpellsASpecialToken) {
  Json body = Json::parse(R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a<|im_end|>b"}]})");
  const auto ids_of_chat = [&](bool splits) {
    body["split_special_tokens"] = splits;
    auto read = read_chat_request(body, scope_of(model_text(), kContext));
    return std::get<GenerationRequest>(std::move(read)).prompts.at(0);
  };
  const Ids trusting = ids_of_chat(false), splitting = ids_of_chat(true);
  EXPECT_EQ(tokenizer().decode(trusting, false), tokenizer().decode(splitting, false));
  EXPECT_EQ(std::ranges::count(trusting, kEnd), std::ranges::count(splitting, kEnd) + 1);
}

TEST(ModelText, AddsNothingAroundChats) {
  const auto refused = read_chat(model_text(), {{"add_special_tokens", true}});
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "add_special_tokens");
  EXPECT_EQ(std::get<ApiError>(refused).code, "unsupported_value");
  EXPECT_TRUE(std::holds_alternative<GenerationRequest>(
      read_chat(model_text(), {{"add_special_tokens", false}})));
}

TEST(ModelText, WantsTrueOrFalseOfSpecialTokens) {
  for (const char* name : {"add_special_tokens", "split_special_tokens"}) {
    const Json wrong = {{"prompt", "Hi"}, {name, 1}};
    const auto mistyped = read_completion_request(wrong, scope_of(model_text(), kContext));
    EXPECT_EQ(std::get<ApiError>(mistyped).param, name);
  }
}

// ---- the template

TEST(ModelText, NeedsATemplateForChatsAlone) {
  const TextFolder folder;
  const auto text = folder.loaded();
  const auto refused = read_chat(*text, Json::object());
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).status, 400);
  EXPECT_THAT(std::get<ApiError>(refused).message, HasSubstr("no chat template"));
  EXPECT_FALSE(prompt_of(*text, "Hi").empty());
}

TEST(ModelText, IsNotLoadedWithATemplateThatItCannotRead) {
  const TextFolder folder;
  folder.write("chat_template.jinja", "\n{% include 'x' %}");
  const auto refused = folder.load();
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("line 2: {% include %}"));
}

TEST(ModelText, HandsTheReasoningEffortToTheTemplate) {
  const TextFolder folder;
  folder.write("chat_template.jinja", "{{ messages[0].content }} {{ reasoning_effort }}");
  const auto text = folder.loaded();
  const auto chat = read_chat(*text, {{"reasoning_effort", "low"}});
  const Ids prompt = std::get<GenerationRequest>(chat).prompts.at(0);
  EXPECT_EQ(tokenizer().decode(prompt, false), "Hi low");
  const auto mistyped = read_chat(*text, {{"reasoning_effort", 3}});
  EXPECT_EQ(std::get<ApiError>(mistyped).param, "reasoning_effort");
}

}  // namespace
}  // namespace halfbyte::server
