// SPDX-License-Identifier: Apache-2.0
//
// Tokens of a known text, one by one, to what a client gets.
#include "server/choice.h"

#include <gtest/gtest.h>

#include "server/protocol.h"

namespace halfbyte::server {
namespace {

const Tokenizer& tokenizer() {
  static const std::unique_ptr<Tokenizer> loaded = [] {
    auto result =
        Tokenizer::load(std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4");
    EXPECT_TRUE(result.ok());
    return std::move(result).value();
  }();
  return *loaded;
}

constexpr std::int32_t kEndOfText = 2;

// The tokens of `text`, and an end of text, or the limit, behind them.
std::vector<TokenEvent> events_of(const std::string& text, FinishReason reason) {
  auto ids = tokenizer().encode(text);
  EXPECT_TRUE(ids.ok());
  if (reason == FinishReason::kStop) ids->push_back(kEndOfText);
  std::vector<TokenEvent> events(ids->size());
  for (std::size_t i = 0; i < events.size(); ++i)
    events[i].token_id = (*ids)[i];
  events.back().finish_reason = reason;
  return events;
}

struct Outcome {
  std::vector<std::string> pieces;
  std::string content;
  std::vector<ToolCall> calls;
  std::string finish_reason;
  std::int64_t num_tokens = 0;
};

Outcome run(const GenerationRequest& request, const std::string& text, FinishReason reason) {
  Choice choice(tokenizer(), request, 0);
  Outcome outcome;
  for (const TokenEvent& event : events_of(text, reason)) {
    const ToolCallParser::Parsed parsed = choice.take(event);
    outcome.pieces.push_back(parsed.content);
    outcome.content += parsed.content;
    outcome.calls.insert(outcome.calls.end(), parsed.calls.begin(), parsed.calls.end());
  }
  outcome.finish_reason = choice.finish_reason();
  outcome.num_tokens = choice.num_tokens();
  return outcome;
}

TEST(Choice, NeverGivesPartOfACharacter) {
  const std::string text = "a \xE2\x82\xAC \xF0\x9F\x98\x80 b";
  const Outcome outcome = run({}, text, FinishReason::kStop);
  EXPECT_EQ(outcome.content, text);
  for (const std::string& piece : outcome.pieces)
    EXPECT_TRUE(Json(piece).dump().find('\\') == std::string::npos)
        << piece;  // dump throws on half
}

// An incomplete character at the end is one U+FFFD.
TEST(Choice, EndsHalfACharacterWithAReplacement) {
  GenerationRequest request;
  Choice choice(tokenizer(), request, 0);
  std::vector<TokenEvent> events = events_of("\xE2\x82\xAC", FinishReason::kStop);
  ASSERT_GT(events.size(), 2U) << "the character is one token";
  events.front().finish_reason = FinishReason::kLength;
  EXPECT_EQ(choice.take(events.front()).content, "\xEF\xBF\xBD");
  EXPECT_EQ(choice.finish_reason(), "length");
}

TEST(Choice, GivesWhatAStopStringHeldBackWhenTheTextEnds) {
  GenerationRequest request;
  request.stop = {"####"};
  const Outcome outcome = run(request, "12 ##", FinishReason::kStop);
  EXPECT_EQ(outcome.content, "12 ##");
  EXPECT_EQ(outcome.finish_reason, "stop");
}

TEST(Choice, TakesAStopStringForTheReasonAlsoAtTheLimit) {
  GenerationRequest request;
  request.stop = {"5"};
  EXPECT_EQ(run(request, "12 5", FinishReason::kLength).finish_reason, "stop");
  EXPECT_EQ(run(request, "12 6", FinishReason::kLength).finish_reason, "length");
}

const std::string kCalls =
    "Sure.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 2, \"a\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";

TEST(Choice, FindsToolCallsWhereTheRequestHasTools) {
  GenerationRequest request;
  EXPECT_EQ(run(request, kCalls, FinishReason::kStop).content, kCalls);
  request.finds_tool_calls = true;
  const Outcome outcome = run(request, kCalls, FinishReason::kStop);
  EXPECT_EQ(outcome.content, "Sure.\n");
  ASSERT_EQ(outcome.calls.size(), 2U);
  EXPECT_EQ(outcome.calls[0].name, "add");
  EXPECT_EQ(outcome.calls[0].arguments, R"({"b":2,"a":1})");
  EXPECT_EQ(outcome.calls[1].name, "stop");
  EXPECT_EQ(outcome.finish_reason, "tool_calls");
}

TEST(Choice, ReturnsACallThatTheLimitCutAsText) {
  GenerationRequest request;
  request.finds_tool_calls = true;
  const std::string cut = "<tool_call>\n{\"name\": \"add\", ";
  const Outcome outcome = run(request, cut, FinishReason::kLength);
  EXPECT_EQ(outcome.content, cut);
  EXPECT_EQ(outcome.finish_reason, "length");
}

// ---- how calls are written

class WritingCalls : public ::testing::Test {
 protected:
  WritingCalls() { request_.is_chat = true; }
  GenerationRequest request_;
  AnswerWriter writer_{request_, "chatcmpl-abcdefghijklmnopqrstuvwx", 5};
  ToolCall call_{"add", R"({"a":1})"};
};

TEST_F(WritingCalls, HasNoContentBesideThem) {
  std::vector<Choice> choices;
  choices.emplace_back(tokenizer(), request_, 0);
  const Json answer = Json::parse(writer_.response(choices, {{"", {call_}}}, {}));
  const Json& message = answer["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"],
            Json({{"name", "add"}, {"arguments", R"({"a":1})"}}));
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["id"].get<std::string>().size(), 5U + 24U);
}

TEST_F(WritingCalls, StreamsTheSameWithAnIndex) {
  const std::string event = writer_.call_event(1, 2, call_, {});
  const Json delta = Json::parse(event.substr(6))["choices"][0]["delta"]["tool_calls"][0];
  EXPECT_EQ(delta["index"], 2);
  EXPECT_EQ(delta["id"], "call_abcdefghijklmnopqr010002");
  EXPECT_EQ(delta["function"]["arguments"], R"({"a":1})");
}

}  // namespace
}  // namespace halfbyte::server
