// SPDX-License-Identifier: Apache-2.0
//
// The table of fields in docs/server-api.md, row by row, on the shipped model's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/generation_request.h"
#include "unit/server/shipped_text.h"

namespace halfbyte::server {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kContext = 64;

RequestScope scope() {
  return scope_of(model_text(), kContext);
}

std::variant<GenerationRequest, ApiError> read(bool is_chat, Json body) {
  if (is_chat && !body.contains("messages"))
    body["messages"] = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  if (!is_chat && !body.contains("prompt")) body["prompt"] = "Hi";
  return is_chat ? read_chat_request(body, scope()) : read_completion_request(body, scope());
}

GenerationRequest accepted(bool is_chat, const char* body) {
  auto result = read(is_chat, Json::parse(body));
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<GenerationRequest>(std::move(result));
}

ApiError refused(bool is_chat, const char* body) {
  auto result = read(is_chat, Json::parse(body));
  const auto* error = std::get_if<ApiError>(&result);
  return error != nullptr ? *error : ApiError{200, "accepted", "accepted", "accepted"};
}

struct Refusal {
  const char* body;
  const char* param;
  const char* code = "";
};

void expect_refused(bool is_chat, const std::vector<Refusal>& table) {
  for (const auto& [body, param, code] : table) {
    const ApiError error = refused(is_chat, body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << body;
    EXPECT_EQ(error.code, code) << body;
  }
}

// Both are held for each sequence of a request, and a body has room for megabytes of them.
TEST(Request, BoundsWhatEachSequenceHolds) {
  const auto salted = [](std::size_t bytes) {
    return R"({"cache_salt": ")" + std::string(bytes, 's') + R"("})";
  };
  EXPECT_EQ(accepted(true, salted(1024).c_str()).cache_salt.size(), 1024U);
  expect_refused(true, {{salted(1025).c_str(), "cache_salt"}});
  EXPECT_EQ(accepted(false, R"({"stop_token_ids": [7, 5, 7, 7, 5]})").sampling.stop_token_ids,
            (std::vector<std::int32_t>{5, 7}));
}

TEST(Request, RefusesValuesOutOfRange) {
  const std::vector<Refusal> table = {
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_tokens": -1})", "max_tokens"},
      {R"({"max_tokens": 2147483648})", "max_tokens"},
      {R"({"max_tokens": 1.5})", "max_tokens"},
      {R"({"max_completion_tokens": 0})", "max_completion_tokens"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_p": 0})", "top_p"},
      {R"({"top_p": 1.1})", "top_p"},
      {R"({"top_k": -2})", "top_k"},
      {R"({"n": 0})", "n"},
      {R"({"n": 129})", "n"},
      {R"({"seed": 1.5})", "seed"},
      {R"({"stop": ""})", "stop"},
      {R"({"stop": [""]})", "stop"},
      {R"({"stop": [3]})", "stop"},
      {R"({"stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
       "stop"},
      {R"({"stop_token_ids": [2048]})", "stop_token_ids"},
      {R"({"stop_token_ids": [-1]})", "stop_token_ids"},
      {R"({"stop_token_ids": ["1"]})", "stop_token_ids"},
      {R"({"stream": 1})", "stream"},
      {R"({"stream": true, "stream_options": {"include_usage": 1}})",
       "stream_options.include_usage"},
      {R"({"ignore_eos": 1})", "ignore_eos"},
      {R"({"min_p": -0.1})", "min_p"},
      {R"({"min_p": 1.1})", "min_p"},
      {R"({"presence_penalty": 2.1})", "presence_penalty"},
      {R"({"frequency_penalty": -2.1})", "frequency_penalty"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"({"repetition_penalty": 2.1})", "repetition_penalty"},
      {R"({"logit_bias": {"2048": 1}})", "logit_bias"},
      {R"({"logit_bias": {"-1": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1.0": 1}})", "logit_bias"},
      {R"({"logit_bias": {"01": 1}})", "logit_bias"},
      {R"({"logit_bias": {"99999999999999999999": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1": 100.5}})", "logit_bias"},
      {R"({"logit_bias": {"1": "5"}})", "logit_bias"},
      {R"({"logit_bias": [1]})", "logit_bias"},
      {R"({"min_tokens": -1})", "min_tokens"},
      {R"({"min_tokens": 6, "max_tokens": 5})", "min_tokens"},
      {R"({"min_tokens": 64, "max_tokens": 100})", "min_tokens"},
      {R"({"logprobs": 1.5})", "logprobs"},
      {R"({"return_token_ids": 1})", "return_token_ids"},
      {R"({"cache_salt": 1})", "cache_salt"},
      {R"({"user": 3})", "user"},
      {R"({"priority": "high"})", "priority"},
      {R"({"model": 3})", "model"},
  };
  expect_refused(true, table);
  expect_refused(false, table);
}

TEST(Request, NamesWhatTheEngineCannotDo) {
  const std::vector<Refusal> both = {
      {R"({"regex": "a*"})", "regex", "unsupported_value"},
      {R"({"bad_words": ["no"]})", "bad_words", "unsupported_value"},
      {R"({"allowed_token_ids": [1]})", "allowed_token_ids", "unsupported_value"},
      {R"({"truncate_prompt_tokens": 5})", "truncate_prompt_tokens", "unsupported_value"},
      {R"({"length_penalty": 1.5})", "length_penalty", "unsupported_value"}};
  expect_refused(true, both);
  expect_refused(false, both);
  expect_refused(true, {{R"({"response_format": {"type": "json_object"}})", "response_format",
                         "unsupported_value"}});
  expect_refused(false, {{R"({"suffix": "x"})", "suffix", "unsupported_value"},
                         {R"({"best_of": 2})", "best_of", "unsupported_value"}});
}

TEST(Request, TakesUnsupportedFieldsAtValuesThatAskForNothing) {
  accepted(true, R"({"response_format": {"type": "text"}, "regex": null})");
  accepted(true, R"({"bad_words": [], "length_penalty": 1.0, "chat_template": null})");
  accepted(false, R"({"best_of": 2, "n": 2, "suffix": null})");
}

TEST(Request, HandsOnWhatChangesTheNextToken) {
  for (const bool is_chat : {true, false}) {
    const SamplingParams sampling = accepted(is_chat, R"({
        "min_p": 0.25, "presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 1.5,
        "logit_bias": {"5": 100, "2047": -1.5}, "min_tokens": 3, "max_tokens": 3})")
                                        .sampling;
    EXPECT_EQ(sampling.min_p, 0.25F);
    EXPECT_EQ(sampling.presence_penalty, 2.0F);
    EXPECT_EQ(sampling.frequency_penalty, -2.0F);
    EXPECT_EQ(sampling.repetition_penalty, 1.5F);
    EXPECT_EQ(sampling.logit_bias,
              (std::vector<std::pair<std::int32_t, float>>{{5, 100.0F}, {2047, -1.5F}}));
    EXPECT_EQ(sampling.min_new_tokens, 3);
  }
}

// OpenAI's two endpoints ask for logprobs in two ways.
TEST(Request, CountsLogprobs) {
  EXPECT_EQ(accepted(true, "{}").sampling.num_logprobs, -1);
  EXPECT_EQ(accepted(true, R"({"logprobs": false, "top_logprobs": 0})").sampling.num_logprobs, -1);
  EXPECT_EQ(accepted(true, R"({"logprobs": true})").sampling.num_logprobs, 0);
  EXPECT_EQ(accepted(true, R"({"logprobs": true, "top_logprobs": 20})").sampling.num_logprobs, 20);
  EXPECT_EQ(accepted(false, "{}").sampling.num_logprobs, -1);
  EXPECT_EQ(accepted(false, R"({"logprobs": 0})").sampling.num_logprobs, 0);
  EXPECT_EQ(accepted(false, R"({"logprobs": 20})").sampling.num_logprobs, 20);
  expect_refused(true, {{R"({"logprobs": 1})", "logprobs"},
                        {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
                        {R"({"logprobs": true, "top_logprobs": -1})", "top_logprobs"},
                        {R"({"top_logprobs": 2})", "top_logprobs"}});
  expect_refused(false, {{R"({"logprobs": true})", "logprobs"},
                         {R"({"logprobs": 21})", "logprobs"},
                         {R"({"logprobs": -1})", "logprobs"}});
}

TEST(Request, AsksForLogprobsOfAnEchoedPrompt) {
  EXPECT_EQ(accepted(false, R"({"echo": true, "logprobs": 3})").sampling.num_prompt_logprobs, 3);
  EXPECT_EQ(accepted(false, R"({"echo": true, "logprobs": 0})").sampling.num_prompt_logprobs, 0);
  EXPECT_EQ(accepted(false, R"({"echo": true})").sampling.num_prompt_logprobs, -1);
  EXPECT_EQ(accepted(false, R"({"logprobs": 3})").sampling.num_prompt_logprobs, -1);
  EXPECT_EQ(accepted(true, R"({"logprobs": true})").sampling.num_prompt_logprobs, -1);
}

TEST(Request, MayWantNoTokensWhereItEchoes) {
  EXPECT_EQ(accepted(false, R"({"echo": true, "max_tokens": 0})").max_tokens, 0);
  expect_refused(false, {{R"({"max_tokens": 0})", "max_tokens"},
                         {R"({"echo": false, "max_tokens": 0})", "max_tokens"},
                         {R"({"echo": true, "max_tokens": -1})", "max_tokens"},
                         {R"({"echo": true, "max_tokens": 0, "min_tokens": 1})", "min_tokens"}});
  expect_refused(true, {{R"({"echo": true, "max_tokens": 0})", "max_tokens"}});
}

TEST(Request, KeepsPromptsToEcho) {
  const auto texts = accepted(false, R"({"echo": true, "prompt": ["Hi ", [40, 41]]})").prompt_texts;
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "Hi ", model_text().tokenizer().decode(std::vector{40, 41}, true)}));
  EXPECT_TRUE(accepted(false, "{}").prompt_texts.empty());
}

TEST(Request, RefusesEmptyPrompts) {
  expect_refused(false, {{R"({"prompt": ""})", "prompt"},
                         {R"({"prompt": [""]})", "prompt[0]"},
                         {R"({"prompt": []})", "prompt"},
                         {R"({"prompt": [[]]})", "prompt[0]"},
                         {R"({"prompt": ["a", ""]})", "prompt[1]"},
                         {R"({"prompt": [2048]})", "prompt"},
                         {R"({"prompt": [-1]})", "prompt"},
                         {R"({"prompt": [[1, 2048]]})", "prompt[0]"},
                         {R"({"prompt": [1, "a"]})", "prompt"},
                         {R"({"prompt": ["a", 1]})", "prompt[1]"},
                         {R"({"prompt": 7})", "prompt"},
                         {R"({"prompt": null})", "prompt"}});
}

TEST(Request, TakesEveryFormOfPrompt) {
  EXPECT_EQ(accepted(false, R"({"prompt": [5, 2047]})").prompts,
            (std::vector<std::vector<std::int32_t>>{{5, 2047}}));
  EXPECT_EQ(accepted(false, R"({"prompt": [[5], [6, 7]]})").prompts,
            (std::vector<std::vector<std::int32_t>>{{5}, {6, 7}}));
  const auto one = accepted(false, R"({"prompt": "Hi"})").prompts;
  const auto two = accepted(false, R"({"prompt": ["Hi", "Hi"]})").prompts;
  EXPECT_EQ(two, (std::vector<std::vector<std::int32_t>>{one[0], one[0]}));
}

TEST(Request, RefusesAPromptAsLongAsTheContext) {
  Json body = {{"prompt", std::vector<int>(kContext - 1, 5)}};
  EXPECT_TRUE(std::holds_alternative<GenerationRequest>(read(false, body)));
  body["prompt"].push_back(5);
  const auto result = read(false, body);
  const ApiError error = std::get<ApiError>(result);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_THAT(error.message, HasSubstr("64 tokens, want fewer than the context of 64"));
}

TEST(Request, LimitsSequences) {
  Json body = {{"prompt", std::vector<std::string>(3, "Hi")}, {"n", 100}};
  EXPECT_EQ(std::get<ApiError>(read(false, body)).param, "n");
}

TEST(Request, HasTheDocumentedDefaults) {
  const GenerationRequest chat = accepted(true, "{}");
  EXPECT_EQ(chat.model, "first");
  EXPECT_EQ(chat.max_tokens, std::nullopt);
  EXPECT_EQ(chat.sampling.temperature, 1.0F);
  EXPECT_EQ(chat.sampling.top_p, 1.0F);
  EXPECT_EQ(chat.sampling.top_k, 0);
  EXPECT_EQ(chat.sampling.min_p, 0.0F);
  EXPECT_EQ(chat.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(chat.sampling.seed, 77U);
  EXPECT_EQ(chat.n, 1);
  EXPECT_TRUE(chat.skip_special_tokens);
  EXPECT_EQ(accepted(false, "{}").max_tokens, 16);
}

TEST(Request, LetsTheNewerNameOfMaxTokensWin) {
  EXPECT_EQ(accepted(true, R"({"max_tokens": 5, "max_completion_tokens": 7})").max_tokens, 7);
}

TEST(Request, TakesAnySixtyFourBitSeed) {
  EXPECT_EQ(accepted(true, R"({"seed": 18446744073709551615})").sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(accepted(true, R"({"seed": -1})").sampling.seed, ~std::uint64_t{0});
}

TEST(Request, HandsHugeTemperaturesOnAsFiniteOnes) {
  EXPECT_TRUE(std::isfinite(accepted(true, R"({"temperature": 1e300})").sampling.temperature));
}

TEST(Request, IgnoresStreamOptionsWithoutStream) {
  EXPECT_FALSE(accepted(true, R"({"stream_options": {"include_usage": true}})").include_usage);
  EXPECT_TRUE(accepted(true, R"({"stream": true, "stream_options": {"include_usage": true}})")
                  .include_usage);
}

TEST(Request, KnowsTheModelsByName) {
  EXPECT_EQ(accepted(true, R"({"model": "second"})").model, "second");
  const ApiError error = refused(true, R"({"model": "third"})");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_THAT(error.message, HasSubstr("first, second"));
}

TEST(Request, NamesUnknownFields) {
  EXPECT_EQ(unknown_fields(Json::parse(R"({"model": "a", "min_p": 0, "regex": "", "foo": 1})")),
            std::vector<std::string>{"foo"});
}

// ---- conversations

TEST(Conversation, RefusesMalformedMessages) {
  expect_refused(
      true, {{R"({"messages": []})", "messages"},
             {R"({"messages": "Hi"})", "messages"},
             {R"({"messages": ["Hi"]})", "messages[0]"},
             {R"({"messages": [{"content": "a"}]})", "messages[0].role"},
             {R"({"messages": [{"role": "robot", "content": "a"}]})", "messages[0].role"},
             {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
             {R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 3}]})",
              "messages[1].content"},
             {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
              "messages[0].content[0].text"},
             {R"({"messages": [{"role": "user", "content": ["a"]}]})", "messages[0].content[0]"},
             {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
              "messages[0].content[0].type", "unsupported_value"},
             {R"({"messages": [{"role": "tool", "content": "a"}]})", "messages[0].tool_call_id"},
             {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
            "arguments": {}}}]}]})",
              "messages[0].tool_calls[0].function.arguments"},
             {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]})",
              "messages[0].tool_calls[0].id"},
             {R"({"messages": [{"role": "assistant", "tool_calls": [{"type": 1}]}]})",
              "messages[0].tool_calls[0].type"}});
}

TEST(Conversation, JoinsPartsToOneText) {
  const auto whole = accepted(true, R"({"messages": [{"role": "user", "content": "What is"}]})");
  const auto parts = accepted(true, R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "What"}, {"type": "text", "text": " is"}]}]})");
  EXPECT_EQ(parts.prompts, whole.prompts);
}

TEST(Conversation, TakesDeveloperForSystem) {
  EXPECT_EQ(accepted(true, R"({"messages": [{"role": "developer", "content": "Be"}]})").prompts,
            accepted(true, R"({"messages": [{"role": "system", "content": "Be"}]})").prompts);
}

// The template writes "<|im_start|>assistant\n" for it.
TEST(Conversation, EndsWithTheGenerationPromptUnlessAskedNotTo) {
  const auto with = accepted(true, "{}").prompts[0];
  const auto without = accepted(true, R"({"add_generation_prompt": false})").prompts[0];
  EXPECT_GT(with.size(), without.size());
  EXPECT_TRUE(std::equal(without.begin(), without.end(), with.begin()));
}

TEST(Conversation, GoesOnInTheLastMessage) {
  const char* body = R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": " It is "}]})";
  const std::string prompt =
      model_text().tokenizer().decode(accepted(true, body).prompts[0], false);
  EXPECT_TRUE(prompt.ends_with("assistant\nIt is")) << prompt << ": this template trims";
  expect_refused(true, {{R"({"continue_final_message": true})", "continue_final_message"},
                        {R"({"continue_final_message": true, "add_generation_prompt": true,
                             "messages": [{"role": "assistant", "content": "a"}]})",
                         "continue_final_message"},
                        {R"({"continue_final_message": true,
                             "messages": [{"role": "assistant", "content": " "}]})",
                         "continue_final_message"}});
}

TEST(Conversation, ChecksTools) {
  expect_refused(
      true,
      {{R"({"tools": [{"type": "function", "function": {"name": "a b"}}]})",
        "tools[0].function.name"},
       {R"({"tools": [{"type": "other"}]})", "tools[0].type"},
       {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
       {R"({"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]})",
        "tools[0].function.description"},
       {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]})",
        "tools[0].function.parameters"},
       {R"({"tools": [{"type": "function", "function": {"name": "f"}},
                      {"type": "function", "function": {"name": "f"}}]})",
        "tools[1].function.name"},
       {R"({"tool_choice": "required"})", "tool_choice"},
       {R"({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"})",
        "tool_choice", "unsupported_value"}});
  accepted(true, R"({"tools": [{"type": "function", "function": {"name": "f"}}]})");
}

// The shipped model's vocabulary has no marker of either.
TEST(Conversation, IsSearchedForWhatTheModelWrites) {
  const char* body = R"({"tools": [{"type": "function", "function": {"name": "f"}}]})";
  EXPECT_EQ(accepted(true, body).tool_calls, std::nullopt);
  EXPECT_EQ(accepted(true, body).reasoning, Reasoning::kNone);
  const auto told =
      ModelText::load(std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4",
                      {.tool_call_parser = "deepseekv3", .reasoning_parser = "qwen3"});
  ASSERT_TRUE(told.ok());
  RequestScope with_parsers = scope();
  with_parsers.text = told->get();
  Json json = Json::parse(body);
  json["messages"] = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  const auto request = std::get<GenerationRequest>(read_chat_request(json, with_parsers));
  EXPECT_EQ(request.tool_calls, ToolCallFormat::kDeepSeek);
  EXPECT_EQ(request.reasoning, Reasoning::kMayBegin);
}

TEST(Conversation, IsSearchedForNoCallsWhereNoneAreWanted) {
  const auto told = load_text({.tool_call_parser = "qwen3"});
  RequestScope with_calls = scope();
  with_calls.text = told.get();
  Json body = Json::parse(R"({"messages": [{"role": "user", "content": "Hi"}],
      "tools": [{"type": "function", "function": {"name": "f"}}]})");
  const auto read_it = [&] {
    return std::get<GenerationRequest>(read_chat_request(body, with_calls));
  };
  EXPECT_EQ(read_it().tool_calls, ToolCallFormat::kQwen3);
  body["tool_choice"] = "none";
  EXPECT_EQ(read_it().tool_calls, std::nullopt);
}

TEST(Conversation, DoesNotLetTemplateArgumentsReplaceMessages) {
  expect_refused(true, {{R"({"chat_template_kwargs": {"messages": []}})", "chat_template_kwargs"},
                        {R"({"chat_template_kwargs": []})", "chat_template_kwargs"}});
  accepted(true, R"({"chat_template_kwargs": {"enable_thinking": false}})");
}

}  // namespace
}  // namespace halfbyte::server
