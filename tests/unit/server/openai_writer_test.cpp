// SPDX-License-Identifier: Apache-2.0
//
// Chats: how calls and reasoning are written.
#include <gtest/gtest.h>

#include "unit/server/format_fixture.h"

namespace halfbyte::server {
namespace {

class ChatAnswer : public ::testing::Test {
 protected:
  ChatAnswer() { request_.is_chat = true; }

  // The delta of the one event that `part` makes.
  Json delta_of(AnswerPart part) {
    AnswerWriter::Tokens none;
    const std::string event = writer_->part_events({1, choices_[0], usage_}, std::move(part), none);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    return Json::parse(event.substr(6))["choices"][0]["delta"];
  }
  Json message_of(const AnswerPart& part) {
    return Json::parse(
        writer_->response(choices_, {AnswerParts{part}}, usage_))["choices"][0]["message"];
  }

  GenerationRequest request_;
  Usage usage_{.completion_tokens = 5, .reasoning_tokens = 3};
  std::vector<Choice> choices_ = one_choice();
  const std::unique_ptr<const ApiFormat> format_ = make_chat_format();
  const std::unique_ptr<AnswerWriter> writer_ =
      format_->make_writer({request_, tokenizer(), "chatcmpl-abcdefghijklmnopqrstuvwx", 5});
  CallDelta call_{2, "call_abc", "add", R"({"a":1})"};

 private:
  std::vector<Choice> one_choice() {
    std::vector<Choice> choices;
    choices.emplace_back(tokenizer(), request_, 0);
    return choices;
  }
};

TEST_F(ChatAnswer, HasNoContentBesideCalls) {
  const Json message = message_of({.calls = {call_}});
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"],
            Json({{"name", "add"}, {"arguments", R"({"a":1})"}}));
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["id"], "call_abc");
}

TEST_F(ChatAnswer, StreamsCallsWithAnIndexAndTheRestOfTheirArgumentsAlone) {
  const Json first = delta_of({.calls = {call_}})["tool_calls"][0];
  EXPECT_EQ(first["index"], 2);
  EXPECT_EQ(first["id"], "call_abc");
  EXPECT_EQ(first["type"], "function");
  EXPECT_EQ(first["function"], Json({{"name", "add"}, {"arguments", R"({"a":1})"}}));
  const Json more = delta_of({.calls = {{.index = 2, .arguments = ", 3"}}})["tool_calls"][0];
  EXPECT_EQ(more, Json({{"index", 2}, {"function", {{"arguments", ", 3"}}}}));
}

TEST_F(ChatAnswer, KeepsReasoningApartInStreamAndWhole) {
  EXPECT_EQ(delta_of({.reasoning = "Hm"}), Json({{"reasoning_content", "Hm"}}));
  const Json message = message_of({.reasoning = "Hm", .content = "2"});
  EXPECT_EQ(message["reasoning_content"], "Hm");
  EXPECT_EQ(message["content"], "2");
}

TEST_F(ChatAnswer, CountsTokensOfReasoning) {
  const Json answer = Json::parse(writer_->response(choices_, {AnswerParts()}, usage_));
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
}

// ---- parts in their order

TEST(AnswerParts, JoinWhatIsOfOneKind) {
  AnswerParts parts;
  append({.content = "a"}, parts);
  append({.content = "b"}, parts);
  append({.calls = {{0, "id", "f", "{"}}}, parts);
  append({.calls = {{.index = 0, .arguments = "}"}}}, parts);
  append({.content = "c"}, parts);
  append({}, parts);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].content, "ab");
  ASSERT_EQ(parts[1].calls.size(), 1U);
  EXPECT_EQ(parts[1].calls[0].arguments, "{}");
  EXPECT_EQ(merge(parts).content, "abc");
  EXPECT_EQ(merge(parts).calls[0].arguments, "{}");
}

// A token without text is part of a character, or held back: it belongs to the text behind it.
TEST(AnswerParts, PutTokensBeforeTheTextThatTheyBecame) {
  AnswerParts parts;
  append({.reasoning = "a", .tokens = {{1}}}, parts);
  append({.tokens = {{2}}}, parts);
  append({.content = "b", .tokens = {{3}}}, parts);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].tokens.size(), 1U);
  EXPECT_EQ(parts[1].tokens.size(), 2U);
  EXPECT_EQ(merge(parts).tokens.size(), 3U);
}

}  // namespace
}  // namespace halfbyte::server
