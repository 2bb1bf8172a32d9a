// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/responses: requests are those of an equal chat, answers have their items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/response_store.h"
#include "unit/server/format_fixture.h"

namespace halfbyte::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ResponsesTest : public ::testing::Test {
 protected:
  static GenerationRequest chat(const char* body) { return accepted(*make_chat_format(), body); }

  const std::shared_ptr<ResponseStore> store_ = std::make_shared<ResponseStore>();
  const std::unique_ptr<const ApiFormat> format_ = make_responses_format(store_);
  GenerationRequest request_ = accepted(*format_, R"({"input": "Hi"})");
};

// What an SDK puts together from the deltas of a stream.
Json output_from(const std::vector<Json>& events) {
  Json output = Json::array();
  for (const Json& event : events) {
    const auto type = event["type"].get<std::string>();
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], output.size());
      output.push_back(event["item"]);
    } else if (type == "response.content_part.added") {
      output.back()["content"].push_back(event["part"]);
    } else if (type == "response.output_item.done") {
      output.back()["status"] = event["item"]["status"];
      EXPECT_EQ(output.back(), event["item"]);
    } else if (type.ends_with(".delta")) {
      EXPECT_EQ(event["item_id"], output.back()["id"]);
      const bool is_call = type == "response.function_call_arguments.delta";
      Json& text = is_call ? output.back()["arguments"] : output.back()["content"][0]["text"];
      text = text.get<std::string>() + event["delta"].get<std::string>();
    }
  }
  return output;
}

TEST_F(ResponsesTest, AreTheSameInPiecesAndWhole) {
  search_for_everything(request_);
  const Written written = write(*format_, request_, kMixedAnswer, FinishReason::kStop);
  const std::vector<Json> events = typed_events_of(written.stream);
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"], written.whole);
  EXPECT_EQ(output_from(events), written.whole["output"]);
  for (std::size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i]["sequence_number"], i);
  const Json& output = written.whole["output"];
  ASSERT_EQ(output.size(), 5U) << to_text(output);
  EXPECT_EQ(output[0]["content"][0]["text"], "Hm.");
  EXPECT_EQ(output[1]["content"][0]["text"], "Sure.\n");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "add");
  EXPECT_EQ(output[2]["arguments"], R"({"b": 2, "a": 1})");
  EXPECT_EQ(output[3]["content"][0]["text"], "And:\n");
  EXPECT_NE(output[2]["call_id"], output[4]["call_id"]);
  EXPECT_EQ(written.whole["usage"]["input_tokens"], 7);
}

TEST_F(ResponsesTest, StreamTheEventsThatTheirClientsWaitFor) {
  const Written written = write(*format_, request_, "1", FinishReason::kStop);
  EXPECT_THAT(types_of(typed_events_of(written.stream)),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
}

TEST_F(ResponsesTest, SayWhyTheyAreIncomplete) {
  const Json cut = write(*format_, request_, "12", FinishReason::kLength).whole;
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"], Json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  const Json aborted = write(*format_, request_, "12", FinishReason::kCancelled).whole;
  EXPECT_EQ(aborted["status"], "cancelled");
}

TEST_F(ResponsesTest, HaveLogprobsOfEveryTokenOfTheirText) {
  request_ = accepted(*format_, R"({"input": "Hi", "top_logprobs": 1,
                                    "include": ["message.output_text.logprobs"]})");
  std::vector<TokenEvent> events = events_of("12", FinishReason::kStop);
  for (TokenEvent& event : events)
    event.logprobs = {{event.token_id, -1.0F}, {5, -0.5F}};
  const Written written = Writing(*format_, request_).run(events);
  const Json& want = written.whole["output"][0]["content"][0]["logprobs"];
  EXPECT_EQ(want.size(), 3U) << "and the end of text";
  EXPECT_EQ(want[0]["token"], "1");
  EXPECT_EQ(want[0]["top_logprobs"].size(), 1U);
  const std::vector<Json> streamed = typed_events_of(written.stream);
  EXPECT_EQ(streamed.back()["response"]["output"][0]["content"][0]["logprobs"], want);
}

TEST_F(ResponsesTest, RepeatWhatTheyWereAskedFor) {
  request_ = accepted(*format_, R"({"input": "Hi", "instructions": "Be", "metadata": {"a": "b"},
                                    "temperature": 0.7, "max_output_tokens": 5})");
  const Json response = write(*format_, request_, "1", FinishReason::kStop).whole;
  EXPECT_EQ(response["instructions"], "Be");
  EXPECT_EQ(response["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(response["temperature"], 0.7);
  EXPECT_EQ(response["max_output_tokens"], 5);
  EXPECT_EQ(response["top_p"], 1.0);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
}

TEST_F(ResponsesTest, EndAStreamThatFailsWithTheError) {
  const auto writer = format_->make_writer({request_, tokenizer(), "resp_a", 5});
  std::string stream = writer->begin();
  EXPECT_EQ(store_->find("resp_a")->response["status"], "in_progress");
  stream += writer->error_events({500, "NaN", "", ""});
  const std::vector<Json> events = typed_events_of(stream);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2]["message"], "NaN");
  EXPECT_EQ(events[3]["type"], "response.failed");
  EXPECT_EQ(events[3]["response"]["error"]["message"], "NaN");
  EXPECT_EQ(store_->find("resp_a")->response["status"], "failed");
}

TEST_F(ResponsesTest, AreCancelledWhenTheirClientLeaves) {
  format_->make_writer({request_, tokenizer(), "resp_refused", 5});
  EXPECT_EQ(store_->find("resp_refused"), nullptr) << "the engine has not taken it";
  format_->make_writer({request_, tokenizer(), "resp_a", 5})->begin();
  EXPECT_EQ(store_->find("resp_a")->response["status"], "cancelled");
}

TEST_F(ResponsesTest, AreStoredUnlessAskedNotTo) {
  const auto id_of = [this] {
    return write(*format_, request_, "1", FinishReason::kStop).whole["id"].get<std::string>();
  };
  const std::string id = id_of();
  EXPECT_EQ(store_->find(id)->response["output"][0]["content"][0]["text"], "1");
  store_->erase(id);
  request_ = accepted(*format_, R"({"input": "Hi", "store": false})");
  EXPECT_EQ(store_->find(id_of()), nullptr);
}

// ---- requests

TEST_F(ResponsesTest, AskForWhatAnEqualChatAsksFor) {
  const GenerationRequest got = accepted(*format_, R"({
      "model": "second", "instructions": "Be", "max_output_tokens": 9, "temperature": 0.5,
      "input": [{"role": "user", "content": [{"type": "input_text", "text": "What"},
                                             {"type": "input_text", "text": " is"}]}]})");
  const GenerationRequest want = chat(R"({
      "messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "What is"}]})");
  EXPECT_EQ(got.prompts, want.prompts);
  EXPECT_EQ(got.model, "second");
  EXPECT_EQ(got.max_tokens, 9);
  EXPECT_EQ(got.sampling.temperature, 0.5F);
  EXPECT_EQ(accepted(*format_, R"({"input": "Hi"})").prompts,
            chat(R"({"messages": [{"role": "user", "content": "Hi"}]})").prompts);
}

TEST_F(ResponsesTest, TakeTheItemsThatTheyGave) {
  const GenerationRequest got = accepted(*format_, R"({"input": [
      {"type": "message", "role": "user", "content": "a"},
      {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "c"},
      {"type": "function_call_output", "call_id": "2", "output": "d"}]})");
  const GenerationRequest want = chat(R"({"messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "t", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "c"},
      {"role": "tool", "tool_call_id": "2", "content": "d"}]})");
  EXPECT_EQ(got.prompts, want.prompts);
}

TEST_F(ResponsesTest, GoOnFromAnEarlierOne) {
  request_ = accepted(*format_, R"({"input": "What is 1?", "instructions": "Be"})");
  const std::string id =
      write(*format_, request_, "It is", FinishReason::kStop).whole["id"].get<std::string>();
  const Json body = {{"input", "And 2?"}, {"previous_response_id", id}};
  const GenerationRequest want = chat(R"({"messages": [
      {"role": "user", "content": "What is 1?"}, {"role": "assistant", "content": "It is"},
      {"role": "user", "content": "And 2?"}]})");
  EXPECT_EQ(accepted(*format_, body).prompts, want.prompts) << "instructions are not handed down";
}

TEST_F(ResponsesTest, NameFieldsAsTheyWereWritten) {
  expect_refusals(
      *format_,
      {{R"({})", "input"},
       {R"({"input": 3})", "input"},
       {R"({"input": []})", "input"},
       {R"({"input": ["a"]})", "input[0]"},
       {R"({"input": [{"role": "robot", "content": "a"}], "instructions": "Be"})", "input[0].role"},
       {R"({"input": [{"role": "user"}]})", "input[0].content"},
       {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
        "input[0].content[0].type", "unsupported_value"},
       {R"({"input": [{"role": "user", "content": "a"}, {"type": "web_search_call"}]})",
        "input[1].type", "unsupported_value"},
       {R"({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]})",
        "input[0].name"},
       {R"({"input": [{"type": "function_call", "call_id": "1", "name": "f"}]})",
        "input[0].arguments"},
       {R"({"input": [{"type": "function_call", "call_id": 1, "name": "f", "arguments": "{}"}]})",
        "input[0].call_id"},
       {R"({"input": [{"type": "function_call_output", "output": "a"}]})", "input[0].call_id"},
       {R"({"input": [{"type": "function_call_output", "call_id": "1", "output": 3}]})",
        "input[0].output"},
       {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens"},
       {R"({"input": "a", "top_p": 2})", "top_p"},
       {R"({"input": "a", "top_logprobs": 21})", "top_logprobs"},
       {R"({"input": "a", "store": 1})", "store"},
       {R"({"input": "a", "metadata": []})", "metadata"},
       {R"({"input": "a", "reasoning": {"effort": 3}})", "reasoning.effort"},
       {R"({"input": "a", "previous_response_id": "resp_x"})", "previous_response_id",
        "previous_response_not_found"}});
}

TEST_F(ResponsesTest, RefuseWhatIsNotThere) {
  expect_refusals(
      *format_,
      {{R"({"input": "a", "background": true})", "background", "unsupported_value"},
       {R"({"input": "a", "truncation": "auto"})", "truncation", "unsupported_value"},
       {R"({"input": "a", "conversation": "c"})", "conversation", "unsupported_value"},
       {R"({"input": "a", "prompt": {"id": "p"}})", "prompt", "unsupported_value"},
       {R"({"input": "a", "include": ["file_search_call.results"]})", "include[0]",
        "unsupported_value"},
       {R"({"input": "a", "tools": [{"type": "web_search"}]})", "tools[0].type",
        "unsupported_value"},
       {R"({"input": "a", "tools": [{"type": "function", "name": "a b"}]})", "tools[0].name"},
       {R"({"input": "a", "tools": [3]})", "tools[0]"}});
  EXPECT_EQ(format_->unknown_fields(Json::parse(R"({"input": "a", "messages": []})")),
            std::vector<std::string>{"messages"});
}

TEST_F(ResponsesTest, TakeTools) {
  request_ =
      accepted(*format_, R"({"input": "a", "parallel_tool_calls": false, "tool_choice": "auto",
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}]})");
  EXPECT_TRUE(request_.one_tool_call);
  const Json response = write(*format_, request_, "1", FinishReason::kStop).whole;
  EXPECT_EQ(response["tools"][0]["name"], "f");
  EXPECT_EQ(response["parallel_tool_calls"], false);
}

// ---- what is kept

TEST(ResponseStore, ForgetsTheOldestFirst) {
  ResponseStore store(2, 1000);
  for (const char* id : {"a", "b", "c"})
    store.add(id, {Json(id), Json::array()});
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(store.find("b")->response, "b");
  store.replace("a", {"again", Json::array()});
  EXPECT_EQ(store.find("a"), nullptr) << "it is gone";
  EXPECT_TRUE(store.erase("b"));
  EXPECT_FALSE(store.erase("b"));
}

TEST(ResponseStore, IsBoundedInBytes) {
  ResponseStore store(10, 100);
  store.add("a", {std::string(40, 'x'), Json::array()});
  store.add("huge", {std::string(200, 'x'), Json::array()});
  EXPECT_NE(store.find("a"), nullptr);
  EXPECT_EQ(store.find("huge"), nullptr);
  store.add("b", {std::string(40, 'x'), Json::array()});
  EXPECT_NE(store.find("a"), nullptr);
  store.replace("b", {std::string(80, 'x'), Json::array()});
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_NE(store.find("b"), nullptr);
}

}  // namespace
}  // namespace halfbyte::server
