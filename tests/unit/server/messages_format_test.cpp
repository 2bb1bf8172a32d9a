// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's /v1/messages: requests are those of an equal chat, answers have their blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/messages_format.h"
#include "unit/server/format_fixture.h"

namespace halfbyte::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const ApiFormat& format() {
  static const std::unique_ptr<const ApiFormat> made = make_messages_format();
  return *made;
}

GenerationRequest chat(const char* body) {
  static const std::unique_ptr<const ApiFormat> made = make_chat_format();
  return accepted(*made, body);
}

// What an SDK puts together from the deltas of a stream.
Json message_from(const std::vector<Json>& events) {
  Json message = events.front()["message"];
  std::string arguments;
  for (const Json& event : events) {
    Json& content = message["content"];
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], content.size());
      content.push_back(event["content_block"]);
      arguments.clear();
    } else if (event["type"] == "content_block_delta") {
      EXPECT_EQ(event["index"], content.size() - 1) << "one block at a time";
      for (const auto& [name, piece] : event["delta"].items()) {
        if (name == "partial_json") arguments += piece.get<std::string>();
        if (name == "text" || name == "thinking")
          content.back()[name] = content.back()[name].get<std::string>() + piece.get<std::string>();
      }
      if (!arguments.empty()) content.back()["input"] = Json::parse(arguments, nullptr, false);
    } else if (event["type"] == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    }
  }
  return message;
}

TEST(MessagesAnswer, IsTheSameInPiecesAndWhole) {
  GenerationRequest request;
  request.model = "first";
  search_for_everything(request);
  const Written written = write(format(), request, kMixedAnswer, FinishReason::kStop);
  const std::vector<Json> events = typed_events_of(written.stream);
  EXPECT_EQ(message_from(events), written.whole);
  const Json& content = written.whole["content"];
  ASSERT_EQ(content.size(), 5U) << to_text(content);
  EXPECT_EQ(content[0], Json({{"type", "thinking"}, {"thinking", "Hm."}, {"signature", ""}}));
  EXPECT_EQ(content[1], Json({{"type", "text"}, {"text", "Sure.\n"}}));
  EXPECT_EQ(content[2]["type"], "tool_use");
  EXPECT_EQ(content[2]["name"], "add");
  EXPECT_EQ(content[2]["input"], Json({{"b", 2}, {"a", 1}}));
  EXPECT_EQ(content[3], Json({{"type", "text"}, {"text", "And:\n"}}));
  EXPECT_EQ(content[4]["input"], Json::object());
  EXPECT_NE(content[2]["id"], content[4]["id"]);
  EXPECT_EQ(written.whole["stop_reason"], "tool_use");
  EXPECT_EQ(written.whole["usage"]["input_tokens"], 7);
}

TEST(MessagesAnswer, StreamsTheEventsThatItsClientsWaitFor) {
  const Written written = write(format(), {}, "12", FinishReason::kStop);
  EXPECT_THAT(
      types_of(typed_events_of(written.stream)),
      ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
}

TEST(MessagesAnswer, SaysWhyItEnds) {
  GenerationRequest request;
  EXPECT_EQ(write(format(), request, "12", FinishReason::kStop).whole["stop_reason"], "end_turn");
  EXPECT_EQ(write(format(), request, "12", FinishReason::kLength).whole["stop_reason"],
            "max_tokens");
  EXPECT_TRUE(
      write(format(), request, "12", FinishReason::kCancelled).whole["stop_reason"].is_null());
  request.stop = {"2"};
  const Json stopped = write(format(), request, "12", FinishReason::kLength).whole;
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "2");
  EXPECT_EQ(stopped["content"][0]["text"], "1");
}

TEST(MessagesAnswer, ShowsArgumentsThatTheLimitCut) {
  GenerationRequest request;
  request.tool_calls = ToolCallFormat::kQwen3;
  const Json answer =
      write(format(), request, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1",
            FinishReason::kLength)
          .whole;
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
  EXPECT_EQ(answer["content"][0]["input"], Json({{"INVALID_JSON", "{\"a\": 1"}}));
}

TEST(MessagesAnswer, TellsErrorsInItsOwnForm) {
  const HttpResponse refusal = format().refusal({503, "loading", "", ""});
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.body,
            R"({"type":"error","error":{"type":"overloaded_error","message":"loading"}})");
  GenerationRequest request;
  const auto writer = format().make_writer({request, tokenizer(), "msg_a", 5});
  const std::vector<Json> events = typed_events_of(writer->error_events({500, "NaN", "", ""}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["error"]["type"], "api_error");
}

// ---- requests

TEST(MessagesRequest, AsksForWhatAnEqualChatAsksFor) {
  const GenerationRequest got = accepted(format(), R"({
      "model": "second", "max_tokens": 9, "system": [{"type": "text", "text": "Be"}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "What"},
                                                {"type": "text", "text": " is"}]}],
      "stop_sequences": ["#"], "temperature": 0.5, "top_k": 3, "stream": true})");
  const GenerationRequest want = chat(R"({
      "messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "What is"}]})");
  EXPECT_EQ(got.prompts, want.prompts);
  EXPECT_EQ(got.model, "second");
  EXPECT_EQ(got.max_tokens, 9);
  EXPECT_EQ(got.stop, std::vector<std::string>{"#"});
  EXPECT_EQ(got.sampling.temperature, 0.5F);
  EXPECT_EQ(got.sampling.top_k, 3);
  EXPECT_TRUE(got.stream);
}

TEST(MessagesRequest, GivesResultsOfToolsAsMessagesOfTheirOwn) {
  const GenerationRequest got = accepted(format(), R"({"max_tokens": 1, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "text", "text": "b"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "c"}]},
        {"type": "text", "text": "d"}]}]})");
  const GenerationRequest want = chat(R"({"messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "c"}, {"role": "user", "content": "d"}]})");
  EXPECT_EQ(got.prompts, want.prompts);
}

TEST(MessagesRequest, GoesOnInALastMessageOfTheAssistant) {
  const GenerationRequest got = accepted(format(), R"({"max_tokens": 1, "messages": [
      {"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "It is"}]})");
  const std::string prompt = tokenizer().decode(got.prompts[0], false);
  EXPECT_TRUE(prompt.ends_with("assistant\nIt is")) << prompt;
}

// Without it the answer would go on in the assistant's message.
TEST(MessagesRequest, KeepsATurnOfNoBlocks) {
  const auto ending_with = [](const std::string& turns) {
    const std::string body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yo"}, )" +
                             turns + "]}";
    return accepted(format(), body.c_str()).prompts;
  };
  EXPECT_EQ(ending_with(R"({"role": "user", "content": []})"),
            ending_with(R"({"role": "user", "content": ""})"));
}

TEST(MessagesRequest, NamesFieldsAsTheyWereWritten) {
  expect_refusals(
      format(),
      {{R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens"},
       {R"({"max_tokens": 0, "messages": [{"role": "user", "content": "a"}]})", "max_tokens"},
       {R"({"max_tokens": 1})", "messages"},
       {R"({"max_tokens": 1, "messages": []})", "messages"},
       {R"({"max_tokens": 1, "messages": ["a"]})", "messages[0]"},
       {R"({"max_tokens": 1, "messages": [{"role": "system", "content": "a"}]})",
        "messages[0].role"},
       {R"({"max_tokens": 1, "system": "s", "messages": [{"role": "user"}]})",
        "messages[0].content"},
       {R"({"max_tokens": 1, "system": 3, "messages": [{"role": "user", "content": "a"}]})",
        "system"},
       {R"({"max_tokens": 1, "system": [{"type": "image"}],
            "messages": [{"role": "user", "content": "a"}]})",
        "system[0].type", "unsupported_value"},
       {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1"}, {"type": "image", "source": {}}]}]})",
        "messages[0].content[1].type", "unsupported_value"},
       {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]})",
        "messages[0].content[0].tool_use_id"},
       {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "input": {}}]}, {"role": "user", "content": "a"}]})",
        "messages[0].content[0].name"},
       {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": 1, "name": "f", "input": {}}]}, {"role": "user", "content": "a"}]})",
        "messages[0].content[0].id"},
       {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "name": "f", "input": 3}]}]})",
        "messages[0].content[0].input"},
       {R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}]})",
        "messages[0]"},
       {R"({"max_tokens": 1, "stop_sequences": "a", "messages": [{"role": "user", "content": "a"}]})",
        "stop_sequences"},
       {R"({"max_tokens": 1, "stop_sequences": [""],
            "messages": [{"role": "user", "content": "a"}]})",
        "stop_sequences"},
       {R"({"max_tokens": 1, "temperature": -1, "messages": [{"role": "user", "content": "a"}]})",
        "temperature"}});
}

TEST(MessagesRequest, NamesFieldsOfToolsAsTheyWereWritten) {
  expect_refusals(format(), {{R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "tools": [{"name": "a b", "input_schema": {}}]})",
                              "tools[0].name"},
                             {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "tools": [{"name": "f"}]})",
                              "tools[0].input_schema"},
                             {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "bash_20250124", "name": "bash"}]})",
                              "tools[0].type", "unsupported_value"},
                             {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "tool_choice": {"type": "some"}})",
                              "tool_choice.type"},
                             {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "thinking": {"type": "maybe"}})",
                              "thinking.type"}});
}

TEST(MessagesRequest, TakesTools) {
  const char* body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
      "thinking": {"type": "disabled"}, "metadata": {"user_id": "u"}})";
  EXPECT_TRUE(accepted(format(), body).one_tool_call);
  EXPECT_TRUE(format().unknown_fields(Json::parse(body)).empty());
  EXPECT_EQ(format().unknown_fields(Json::parse(R"({"messages": [], "mcp_servers": []})")),
            std::vector<std::string>{"mcp_servers"});
}

TEST(MessagesRequest, CountsThePromptsTokens) {
  const Json body = Json::parse(R"({"messages": [{"role": "user", "content": "What is"}]})");
  const auto count = count_message_tokens(body, scope());
  const auto want = chat(R"({"messages": [{"role": "user", "content": "What is"}]})");
  EXPECT_EQ(std::get<std::int64_t>(count), static_cast<std::int64_t>(want.prompts[0].size()));
  const auto refused = count_message_tokens(Json::parse(R"({"messages": []})"), scope());
  EXPECT_THAT(std::get<ApiError>(refused).message, HasSubstr("messages is required"));
}

}  // namespace
}  // namespace halfbyte::server
