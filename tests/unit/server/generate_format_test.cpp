// SPDX-License-Identifier: Apache-2.0
//
// SGLang's /generate: requests are those of an equal completion, answers have the text so far.
#include <gtest/gtest.h>

#include "unit/server/format_fixture.h"

namespace halfbyte::server {
namespace {

const ApiFormat& format() {
  static const std::unique_ptr<const ApiFormat> made = make_generate_format();
  return *made;
}

TEST(GenerateAnswer, HasTheTextSoFarInEveryEvent) {
  const GenerationRequest request = accepted(format(), R"({"text": "Hi"})");
  const Written written = write(format(), request, "1 + 2", FinishReason::kStop);
  const std::vector<Json> events = events_of(written.stream);
  ASSERT_GT(events.size(), 2U);
  std::string before;
  for (const Json& event : events) {
    EXPECT_TRUE(event["text"].get<std::string>().starts_with(before));
    before = event["text"].get<std::string>();
    EXPECT_EQ(event["meta_info"]["finish_reason"].is_null(), &event != &events.back());
  }
  Json last = events.back(), whole = written.whole;
  last["meta_info"].erase("e2e_latency");
  whole["meta_info"].erase("e2e_latency");
  EXPECT_EQ(last, whole);
  EXPECT_EQ(whole["text"], "1 + 2");
  EXPECT_EQ(whole["output_ids"].size(), whole["meta_info"]["completion_tokens"]);
  EXPECT_EQ(whole["meta_info"]["finish_reason"], Json({{"type", "stop"}, {"matched", kEndOfText}}));
}

TEST(GenerateAnswer, SaysWhyItEnds) {
  GenerationRequest request = accepted(format(), R"({"text": "Hi"})");
  const auto reason = [&request](FinishReason why) {
    return write(format(), request, "12", why).whole["meta_info"]["finish_reason"];
  };
  EXPECT_EQ(reason(FinishReason::kLength), Json({{"type", "length"}, {"length", 2}}));
  EXPECT_EQ(reason(FinishReason::kCancelled)["type"], "abort");
  request.stop = {"2"};
  EXPECT_EQ(reason(FinishReason::kLength), Json({{"type", "stop"}, {"matched", "2"}}));
}

TEST(GenerateAnswer, HasLogprobsAsTriples) {
  const GenerationRequest request = accepted(
      format(),
      R"({"text": "Hi", "return_logprob": true, "top_logprobs_num": 1, "return_text_in_logprobs": true})");
  std::vector<TokenEvent> events = events_of("12", FinishReason::kLength);
  for (TokenEvent& event : events)
    event.logprobs = {{event.token_id, -1.0F}, {5, -0.5F}};
  const Json meta = Writing(format(), request).run(events).whole["meta_info"];
  EXPECT_EQ(meta["output_token_logprobs"][1], Json::array({-1.0, events[1].token_id, "2"}));
  EXPECT_EQ(meta["output_top_logprobs"][0][0][1], 5);
}

// The first token of a prompt follows nothing.
TEST(GenerateAnswer, HasLogprobsOfItsPromptFromWhereItIsAskedFor) {
  const GenerationRequest request =
      accepted(format(), R"({"input_ids": [7, 8], "return_logprob": true, "logprob_start_len": 0,
                    "sampling_params": {"max_new_tokens": 0}})");
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.sampling.num_prompt_logprobs, 0);
  TokenEvent event{.token_id = -1, .finish_reason = FinishReason::kLength};
  event.prompt_logprobs = {{}, {{8, -0.25F}}};
  const Json answer = Writing(format(), request).run({event}).whole;
  EXPECT_EQ(answer["meta_info"]["input_token_logprobs"],
            Json::array({{nullptr, 7, nullptr}, {-0.25, 8, nullptr}}));
  EXPECT_EQ(answer["meta_info"]["output_token_logprobs"], Json::array());
  EXPECT_EQ(answer["output_ids"], Json::array());
  EXPECT_EQ(answer["text"], "");
}

TEST(GenerateRequest, AsksForWhatAnEqualCompletionAsksFor) {
  const GenerationRequest got = accepted(format(), R"({
      "text": ["Hi", "What is"], "rid": "mine", "stream": true,
      "sampling_params": {"max_new_tokens": 9, "min_new_tokens": 2, "temperature": 0.5, "top_k": 3,
        "stop": "a", "stop_token_ids": [7], "sampling_seed": 5, "no_stop_trim": true, "n": 2,
        "ignore_eos": true, "skip_special_tokens": false}})");
  const GenerationRequest want =
      accepted(*make_completion_format(), R"({"prompt": ["Hi", "What is"]})");
  EXPECT_EQ(got.prompts, want.prompts);
  EXPECT_EQ(got.id, "mine");
  EXPECT_EQ(got.max_tokens, 9);
  EXPECT_EQ(got.sampling.min_new_tokens, 2);
  EXPECT_EQ(got.sampling.temperature, 0.5F);
  EXPECT_EQ(got.sampling.top_k, 3);
  EXPECT_EQ(got.sampling.seed, 5U);
  EXPECT_EQ(got.sampling.stop_token_ids, std::vector<std::int32_t>{7});
  EXPECT_EQ(got.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(got.n, 2);
  EXPECT_TRUE(got.include_stop_string && got.sampling.ignore_eos && got.stream);
  EXPECT_FALSE(got.skip_special_tokens);
  EXPECT_EQ(accepted(format(), R"({"input_ids": [5, 6]})").prompts[0],
            (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(accepted(format(), R"({"text": "Hi"})").max_tokens, 128);
  EXPECT_EQ(accepted(format(), R"({"text": "Hi"})").sampling.num_logprobs, -1);
}

TEST(GenerateRequest, IsAnsweredWithAListWhereItAsksForSeveral) {
  for (const char* several : {R"({"text": ["Hi"]})", R"({"input_ids": [[5]]})",
                              R"({"text": "Hi", "sampling_params": {"n": 2}})"})
    EXPECT_EQ(accepted(format(), several).answer_fields["is_list"], true) << several;
  for (const char* one : {R"({"text": "Hi"})", R"({"input_ids": [5]})"})
    EXPECT_EQ(accepted(format(), one).answer_fields["is_list"], false) << one;
}

TEST(GenerateRequest, NamesFieldsAsTheyWereWritten) {
  expect_refusals(
      format(),
      {{R"({})", "text"},
       {R"({"text": "a", "input_ids": [1]})", "text"},
       {R"({"text": ""})", "text"},
       {R"({"text": ["a", ""]})", "text[1]"},
       {R"({"input_ids": "a"})", "input_ids"},
       {R"({"input_ids": ["a"]})", "input_ids"},
       {R"({"text": [1]})", "text"},
       {R"({"input_ids": [2048]})", "input_ids"},
       {R"({"input_ids": [[1], []]})", "input_ids[1]"},
       {R"({"text": "a", "sampling_params": []})", "sampling_params"},
       {R"({"text": "a", "sampling_params": {"temperature": -1}})", "sampling_params.temperature"},
       {R"({"text": "a", "sampling_params": {"max_new_tokens": -1}})",
        "sampling_params.max_new_tokens"},
       {R"({"text": "a", "sampling_params": {"max_new_tokens": 0, "min_new_tokens": 1}})",
        "sampling_params.min_new_tokens"},
       {R"({"text": "a", "sampling_params": {"stop": [""]}})", "sampling_params.stop"},
       {R"({"text": "a", "sampling_params": {"sampling_seed": 1.5}})",
        "sampling_params.sampling_seed"},
       {R"({"text": "a", "sampling_params": {"json_schema": "{"}})", "sampling_params.json_schema"},
       {R"({"text": "a", "sampling_params": {"stop_regex": "a"}})", "sampling_params.stop_regex",
        "unsupported_value"},
       {R"({"text": "a", "return_logprob": true, "top_logprobs_num": 21})", "top_logprobs_num"},
       {R"({"text": "a", "return_logprob": 1})", "return_logprob"},
       {R"({"text": "a", "logprob_start_len": -2})", "logprob_start_len"},
       {R"({"input_ids": [1, 2], "return_logprob": true, "logprob_start_len": 3})",
        "logprob_start_len"},
       {R"({"text": "a", "image_data": "a"})", "image_data", "unsupported_value"},
       {R"({"text": "a", "return_hidden_states": true})", "return_hidden_states",
        "unsupported_value"}});
}

TEST(GenerateRequest, NamesUnknownFields) {
  EXPECT_EQ(format().unknown_fields(
                Json::parse(R"({"text": "a", "foo": 1, "sampling_params": {"n": 1, "bar": 2}})")),
            (std::vector<std::string>{"foo", "sampling_params.bar"}));
}

}  // namespace
}  // namespace halfbyte::server
