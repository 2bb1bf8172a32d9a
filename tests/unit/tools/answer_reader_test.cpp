// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/answer_reader.h"

#include <gtest/gtest.h>

namespace halfbyte::tool {
namespace {

using Events = std::vector<std::string>;

void append(Events& events, Events more) {
  events.insert(events.end(), more.begin(), more.end());
}

// The rules of WHATWG HTML, section 9.2.6: a comment, CRLF and CR lines, data in two lines, a field
// without a space, an event of another field alone, and one that never ends.
constexpr std::string_view kStream =
    ": keep-alive\n\n"
    "data: {\"a\": 1}\n\n"
    "data: one\r\ndata: two\r\n\r\n"
    "event: ping\ndata:three\n\n"
    "id: 7\n\n"
    "data: four\r\r"
    "data: [DONE]\n\n"
    "data: lost";

const Events kEvents = {"{\"a\": 1}", "one\ntwo", "three", "four", "[DONE]"};

TEST(SseReader, TakesEventsApart) {
  SseReader reader;
  EXPECT_EQ(reader.feed(kStream), kEvents);
}

TEST(SseReader, GivesTheSameWhereverTheStreamIsCut) {
  for (std::size_t cut = 0; cut <= kStream.size(); ++cut) {
    SseReader reader;
    Events events = reader.feed(kStream.substr(0, cut));
    append(events, reader.feed(kStream.substr(cut)));
    EXPECT_EQ(events, kEvents) << "cut at " << cut;
  }
}

TEST(SseReader, GivesTheSameByteByByte) {
  SseReader reader;
  Events events;
  for (std::size_t i = 0; i < kStream.size(); ++i)
    append(events, reader.feed(kStream.substr(i, 1)));
  EXPECT_EQ(events, kEvents);
}

TEST(AnswerReader, ReadsAStreamOfAChat) {
  Outcome outcome;
  AnswerReader reader(true, outcome);
  reader.feed(
      R"(data: {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}]})"
      "\n\n",
      0.5);
  reader.feed(R"(data: {"choices": [{"delta": {"content": "Hel"}}]})"
              "\n\n",
              1.0);
  reader.feed(R"(data: {"choices": [{"delta": {"reasoning_content": "lo"}}]})"
              "\n\n",
              2.0);
  reader.feed(R"(data: {"choices": [{"delta": {}, "finish_reason": "stop"}]})"
              "\n\n",
              3.0);
  reader.feed(R"(data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3,)"
              R"( "prompt_tokens_details": {"cached_tokens": 4}}})"
              "\n\n",
              3.5);
  reader.feed("data: [DONE]\n\n", 3.5);
  reader.finish(4.0);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.text, "Hello");
  EXPECT_EQ(outcome.chunks, (std::vector<double>{1.0, 2.0}));
  EXPECT_EQ(outcome.done, 4.0);
  EXPECT_EQ(outcome.finish_reason, "stop");
  EXPECT_EQ(outcome.completion_tokens, 3);
  EXPECT_EQ(outcome.cached_tokens, 4);
}

TEST(AnswerReader, ReadsAWholeCompletionAndWhatToolsAreCalled) {
  Outcome outcome;
  AnswerReader reader(false, outcome);
  reader.feed(R"({"choices": [{"text": "ab", "finish_reason": "length"},
    {"message": {"content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}],)",
              1.0);
  reader.feed(R"("usage": {"prompt_tokens": 2, "completion_tokens": 7}})", 2.0);
  reader.finish(3.0);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.text, "abf{}");
  EXPECT_EQ(outcome.chunks, (std::vector<double>{3.0}));
  EXPECT_EQ(outcome.prompt_tokens, 2);
  EXPECT_EQ(outcome.cached_tokens, 0);
}

std::string error_of_stream(std::string_view bytes) {
  Outcome outcome;
  AnswerReader reader(true, outcome);
  reader.feed(bytes, 1.0);
  reader.finish(2.0);
  return outcome.error;
}

TEST(AnswerReader, SaysWhatIsWrongWithAStream) {
  EXPECT_EQ(error_of_stream("data: {\"choices\": []}\n\n"), "the stream ended without [DONE]");
  EXPECT_EQ(error_of_stream("data: [DONE]\n\n"), "no choice has a finish_reason");
  EXPECT_EQ(error_of_stream("data: nonsense\n\n"), "not a JSON object: nonsense");
  EXPECT_EQ(error_of_stream("data: {\"error\": {\"message\": \"too late\"}}\n\ndata: [DONE]\n\n"),
            "too late");
}

TEST(AnswerReader, QuotesARefusal) {
  Outcome outcome;
  AnswerReader(true, outcome).refuse(429, R"({"error": {"message": "the queue is full"}})");
  EXPECT_EQ(outcome.error, "HTTP status 429: the queue is full");
  AnswerReader(true, outcome).refuse(502, "<html>");
  EXPECT_EQ(outcome.error, "HTTP status 502: <html>");
}

}  // namespace
}  // namespace halfbyte::tool
