// SPDX-License-Identifier: Apache-2.0
//
// Tokens of a known text, one by one, to what a client gets.
#include "server/choice.h"

#include <gtest/gtest.h>

#include <limits>

#include "server/generation_request.h"
#include "server/logprobs.h"
#include "unit/server/token_events.h"

namespace halfbyte::server {
namespace {

struct Outcome {
  std::vector<std::string> pieces;
  std::vector<CallDelta> calls;  // as they came
  AnswerPart whole;
  std::string finish_reason;
  std::int64_t num_tokens = 0;
  std::int64_t num_reasoning_tokens = 0;
};

Outcome run(const GenerationRequest& request, const std::string& text, FinishReason reason) {
  Choice choice(tokenizer(), request, 0);
  Outcome outcome;
  for (const TokenEvent& event : events_of(text, reason)) {
    AnswerPart part = choice.take(event);
    outcome.pieces.push_back(part.content);
    outcome.calls.insert(outcome.calls.end(), part.calls.begin(), part.calls.end());
    outcome.whole.append(std::move(part));
  }
  outcome.finish_reason = choice.finish_reason();
  outcome.num_tokens = choice.num_tokens();
  outcome.num_reasoning_tokens = choice.num_reasoning_tokens();
  return outcome;
}

TEST(Choice, NeverGivesPartOfACharacter) {
  const std::string text = "a \xE2\x82\xAC \xF0\x9F\x98\x80 b";
  const Outcome outcome = run({}, text, FinishReason::kStop);
  EXPECT_EQ(outcome.whole.content, text);
  for (const std::string& piece : outcome.pieces)
    EXPECT_TRUE(Json(piece).dump().find('\\') == std::string::npos)
        << piece;  // dump throws on half
}

// As with tool_choice none, or without tools.
TEST(Choice, LeavesCallsInTheTextWhereNoneAreLookedFor) {
  const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const Outcome outcome = run({}, text, FinishReason::kStop);
  EXPECT_EQ(outcome.whole.content, text);
  EXPECT_TRUE(outcome.calls.empty());
  EXPECT_EQ(outcome.finish_reason, "stop");
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
  EXPECT_EQ(outcome.whole.content, "12 ##");
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
  EXPECT_EQ(run(request, kCalls, FinishReason::kStop).whole.content, kCalls);
  request.tool_calls = ToolCallFormat::kQwen3;
  const Outcome outcome = run(request, kCalls, FinishReason::kStop);
  EXPECT_EQ(outcome.whole.content, "Sure.\n");
  ASSERT_EQ(outcome.whole.calls.size(), 2U);
  EXPECT_EQ(outcome.whole.calls[0].name, "add");
  EXPECT_EQ(outcome.whole.calls[0].arguments, R"({"b": 2, "a": 1})");
  EXPECT_EQ(outcome.whole.calls[1].name, "stop");
  EXPECT_EQ(outcome.finish_reason, "tool_calls");
}

TEST(Choice, GivesArgumentsInPiecesOfCallsThatHaveTheirIdOnce) {
  GenerationRequest request;
  request.tool_calls = ToolCallFormat::kQwen3;
  const Outcome outcome = run(request, kCalls, FinishReason::kStop);
  std::vector<std::string> ids(2), arguments(2);
  std::size_t num_pieces = 0;
  for (const CallDelta& delta : outcome.calls) {
    ASSERT_LT(delta.index, 2U);
    EXPECT_EQ(delta.id.empty(), !ids[delta.index].empty()) << "in the first alone";
    EXPECT_EQ(delta.id.empty(), delta.name.empty());
    if (!delta.id.empty()) ids[delta.index] = delta.id;
    arguments[delta.index] += delta.arguments;
    if (delta.index == 0) ++num_pieces;
  }
  EXPECT_GT(num_pieces, 4U);
  EXPECT_NE(ids[0], ids[1]);
  for (const CallDelta& call : outcome.whole.calls) {
    EXPECT_EQ(call.id, ids[call.index]);
    EXPECT_EQ(call.id.substr(0, 5), "call_");
    EXPECT_EQ(call.id.size(), 5U + 24U);
    EXPECT_EQ(call.arguments, arguments[call.index]);
  }
}

TEST(Choice, EndsWithTheFirstCallIfOneIsWanted) {
  GenerationRequest request;
  request.tool_calls = ToolCallFormat::kQwen3;
  request.one_tool_call = true;
  const Outcome outcome = run(request, kCalls, FinishReason::kStop);
  EXPECT_EQ(outcome.whole.calls.size(), 1U);
  EXPECT_EQ(outcome.finish_reason, "tool_calls");
  EXPECT_LT(outcome.num_tokens, run({}, kCalls, FinishReason::kStop).num_tokens);
}

// Before the { of the arguments it is text, from there on a call.
TEST(Choice, ReturnsACallThatTheLimitCutAsItIs) {
  GenerationRequest request;
  request.tool_calls = ToolCallFormat::kQwen3;
  const std::string head = "<tool_call>\n{\"name\": \"add\", \"arguments\": ";
  const Outcome text = run(request, head, FinishReason::kLength);
  EXPECT_EQ(text.whole.content, head);
  EXPECT_EQ(text.finish_reason, "length");
  for (const bool one_call : {false, true}) {
    request.one_tool_call = one_call;
    const Outcome call = run(request, head + "{\"a\": 12", FinishReason::kLength);
    EXPECT_EQ(call.whole.content, "");
    ASSERT_EQ(call.whole.calls.size(), 1U);
    EXPECT_EQ(call.whole.calls[0].arguments, "{\"a\": 12");
    EXPECT_EQ(call.finish_reason, "length");
    EXPECT_EQ(run(request, head + "{\"a\": 12", FinishReason::kStop).finish_reason, "stop");
  }
}

TEST(Choice, SplitsReasoningOffAndCountsItsTokens) {
  GenerationRequest request;
  request.reasoning = Reasoning::kMayBegin;
  request.tool_calls = ToolCallFormat::kQwen3;
  const std::string thought = "<think>Hm: <tool_call>.</think>";
  const Outcome outcome = run(request, thought + kCalls, FinishReason::kStop);
  EXPECT_EQ(outcome.whole.reasoning, "Hm: <tool_call>.");
  EXPECT_EQ(outcome.whole.content, "Sure.\n");
  EXPECT_EQ(outcome.whole.calls.size(), 2U);
  EXPECT_GT(outcome.num_reasoning_tokens, 5);
  EXPECT_LT(outcome.num_reasoning_tokens, outcome.num_tokens - 20);
}

TEST(Choice, TakesEverythingForReasoningThatNeverEnds) {
  GenerationRequest request;
  request.reasoning = Reasoning::kBegun;
  const Outcome outcome = run(request, "So 12 </thin", FinishReason::kLength);
  EXPECT_EQ(outcome.whole.reasoning, "So 12 </thin");
  EXPECT_EQ(outcome.whole.content, "");
  EXPECT_EQ(outcome.num_reasoning_tokens, outcome.num_tokens);
}

TEST(Choice, StopsInReasoningToo) {
  GenerationRequest request;
  request.reasoning = Reasoning::kBegun;
  request.stop = {"12"};
  const Outcome outcome = run(request, "So 12 is", FinishReason::kStop);
  EXPECT_EQ(outcome.whole.reasoning, "So ");
  EXPECT_EQ(outcome.finish_reason, "stop");
}

// Digits are tokens of their own in this vocabulary.
TEST(Choice, LooksForNoStopStringBeforeMinTokens) {
  GenerationRequest request;
  request.stop = {"2"};
  request.sampling.min_new_tokens = 2;
  EXPECT_EQ(run(request, "123425", FinishReason::kLength).whole.content, "1234");
  request.sampling.min_new_tokens = 1;
  EXPECT_EQ(run(request, "123425", FinishReason::kLength).whole.content, "1");
}

TEST(Choice, EchoesItsPrompt) {
  GenerationRequest request;
  request.echo = true;
  request.prompt_texts = {"other", "12 + "};
  request.stop = {"+"};
  Choice choice(tokenizer(), request, 1);
  EXPECT_EQ(choice.take(events_of("5", FinishReason::kLength).front()).content, "12 + 5");
}

// ---- tokens and their logprobs

TEST(TokenRecords, AreThereForEachTokenAlsoOfTextThatIsCutOrNotShown) {
  GenerationRequest request;
  request.return_token_ids = true;
  request.stop = {"5 6"};
  const Outcome cut = run(request, "12 5 6 7", FinishReason::kStop);
  EXPECT_EQ(cut.whole.content, "12 ");
  EXPECT_EQ(static_cast<std::int64_t>(cut.whole.tokens.size()), cut.num_tokens);
  request.stop.clear();
  const Outcome ended = run(request, "12", FinishReason::kStop);
  EXPECT_EQ(ended.whole.tokens.back().id, kEndOfText);
  EXPECT_EQ(static_cast<std::int64_t>(ended.whole.tokens.size()), ended.num_tokens);
  EXPECT_TRUE(run({}, "12", FinishReason::kStop).whole.tokens.empty());
}

// U+20AC is three bytes and as many tokens here: they share its place.
TEST(TokenRecords, KnowWhereTheirTextBegins) {
  GenerationRequest request;
  request.return_token_ids = true;
  std::vector<std::int64_t> offsets;
  for (const TokenRecord& token : run(request,
                                      "1\xE2\x82\xAC"
                                      "2",
                                      FinishReason::kStop)
                                      .whole.tokens)
    offsets.push_back(token.text_offset);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 1, 1, 1, 2, 3}));
}

std::vector<TokenRecord> two_tokens() {
  const std::int32_t one = tokenizer().encode("1").value().front();
  const std::int32_t half = tokenizer().encode("\xE2\x82\xAC").value().front();
  const float none = -std::numeric_limits<float>::infinity();
  return {{one, {{one, -0.5F}, {one, -0.5F}, {half, -1.0F}}, 0},
          {half, {{half, none}, {one, -0.25F}, {half + 1, -2.0F}}, 1}};
}

TEST(Logprobs, HaveTheFormOfChats) {
  const Json content = chat_logprobs(two_tokens(), tokenizer())["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["token"], "1");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], Json::array({0x31}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2U);
  EXPECT_EQ(content[1]["token"], "\xEF\xBF\xBD") << "part of a character";
  EXPECT_EQ(content[1]["bytes"], Json::array({0xE2}));
  EXPECT_EQ(content[1]["logprob"], -9999.0) << "JSON has no infinity";
}

TEST(Logprobs, HaveTheFormOfCompletions) {
  const Json json = completion_logprobs(two_tokens(), tokenizer(), true);
  EXPECT_EQ(json["tokens"], Json::array({"1", "\xEF\xBF\xBD"}));
  EXPECT_EQ(json["token_logprobs"], Json::array({-0.5, -9999.0}));
  EXPECT_EQ(json["text_offset"], Json::array({0, 1}));
  EXPECT_EQ(json["top_logprobs"][0], Json({{"1", -0.5}, {"\xEF\xBF\xBD", -1.0}}));
  EXPECT_EQ(json["top_logprobs"][1]["1"], -0.25);
  EXPECT_TRUE(completion_logprobs(two_tokens(), tokenizer(), false)["top_logprobs"].is_null());
}

}  // namespace
}  // namespace halfbyte::server
