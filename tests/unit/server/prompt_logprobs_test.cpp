// SPDX-License-Identifier: Apache-2.0
//
// `echo` with `logprobs`: OpenAI's legacy form for the tokens of prompts.
#include <array>
#include <map>

#include "server/logprobs.h"
#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

constexpr std::array kLists = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

// Lists of all events of a stream, one behind the other, and its texts.
struct Streamed {
  std::map<std::string, Json> lists;
  std::string text;
  Json token_ids = Json::array();
};

Streamed join(const std::vector<Json>& events) {
  Streamed joined;
  for (const Json& event : events) {
    const Json& choice = event["choices"][0];
    joined.text += choice["text"].get<std::string>();
    for (const Json& id : choice.value("token_ids", Json::array()))
      joined.token_ids.push_back(id);
    if (choice["logprobs"].is_null()) continue;
    for (const auto& [name, list] : choice["logprobs"].items()) {
      for (const Json& entry : list)
        joined.lists[name].push_back(entry);
    }
  }
  return joined;
}

Json echo_body(const std::vector<std::int32_t>& prompt, std::int64_t max_tokens) {
  return {{"prompt", prompt},
          {"max_tokens", max_tokens},
          {"temperature", 0},
          {"ignore_eos", true},
          {"echo", true},
          {"logprobs", 2},
          {"return_token_ids", true}};
}

TEST_F(ApiTest, GivesLogprobsOfAnEchoedPromptBeforeThoseOfTheAnswer) {
  make_ready();
  const auto prompt = fake_prompt(20, 3);
  const Json whole = complete_ok(echo_body(prompt, 6))["choices"][0];
  const Json& logprobs = whole["logprobs"];
  for (const char* name : kLists)
    ASSERT_EQ(logprobs[name].size(), 26U) << name;
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null()) << "nothing comes before the first token";
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(whole["token_ids"].size(), 6U) << "those of the answer";
  EXPECT_EQ(whole["prompt_token_ids"], Json(prompt));
  for (std::size_t i = 1; i < 26; ++i) {
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0.0) << i;
    EXPECT_GE(logprobs["top_logprobs"][i].size(), 1U) << i;
    EXPECT_GE(logprobs["text_offset"][i], logprobs["text_offset"][i - 1]) << i;
  }
}

TEST_F(ApiTest, StreamsTheLogprobsOfAnEchoedPromptAsItGivesThemWhole) {
  make_ready();
  Json body = echo_body(fake_prompt(20, 3), 6);
  const Json whole = complete_ok(body)["choices"][0];
  body["stream"] = true;
  const Streamed streamed = join(events_of(complete(body).body));
  EXPECT_EQ(whole["text"], streamed.text);
  EXPECT_EQ(whole["token_ids"], streamed.token_ids);
  for (const char* name : kLists)
    EXPECT_EQ(whole["logprobs"][name], streamed.lists.at(name)) << name;
}

// The prefix cache has the prompt of the first answer; logprobs are computed all the same.
TEST_F(ApiTest, GivesTheSameLogprobsWhateverIsCached) {
  make_ready();
  const Json body = echo_body(fake_prompt(60, 3), 3);
  const Json first = complete_ok(body)["choices"];
  EXPECT_EQ(complete_ok(body)["choices"], first);
}

// Tools that compare continuations ask for no tokens at all.
TEST_F(ApiTest, ScoresAPromptWithoutAnAnswer) {
  make_ready();
  const auto prompt = fake_prompt(20, 3);
  Json body = echo_body(prompt, 0);
  const Json answer = complete_ok(body);
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], text_for(prompt));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["token_ids"], Json::array());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 20);
  const Json more = complete_ok(echo_body(prompt, 3))["choices"][0]["logprobs"];
  for (const char* name : kLists) {
    ASSERT_EQ(choice["logprobs"][name].size(), 20U) << name;
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_EQ(choice["logprobs"][name][i], more[name][i]) << name << " " << i;
  }
  body["stream"] = true;
  const Streamed streamed = join(events_of(complete(body).body));
  EXPECT_EQ(choice["text"], streamed.text);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], streamed.lists.at("token_logprobs"));
  body["max_tokens"] = -1;
  EXPECT_EQ(complete(body).status, 400);
}

// ---- where the text of a prompt's tokens begins

std::vector<std::int64_t> offsets_of(const std::vector<std::int32_t>& ids,
                                     const std::string& text,
                                     std::int64_t start = 0) {
  std::vector<std::int64_t> offsets;
  const std::vector<std::vector<TokenLogprob>> logprobs(ids.size() -
                                                        static_cast<std::size_t>(start));
  for (const TokenRecord& record : prompt_records(ids, start, logprobs, text, tokenizer())) {
    EXPECT_TRUE(record.of_prompt);
    offsets.push_back(record.text_offset);
  }
  return offsets;
}

// Digits are tokens of their own; U+20AC is three bytes and as many tokens; 2 is a special token.
TEST(PromptRecords, KnowWhereTheirTextBegins) {
  const std::string text =
      "1\xE2\x82\xAC"
      "2";
  std::vector<std::int32_t> ids = tokenizer().encode(text).value();
  ASSERT_EQ(ids.size(), 5U);
  EXPECT_EQ(offsets_of(ids, text), (std::vector<std::int64_t>{0, 1, 1, 1, 2}));
  EXPECT_EQ(offsets_of(ids, text, 3), (std::vector<std::int64_t>{1, 2}));
  ids.insert(ids.begin(), 2);
  EXPECT_EQ(offsets_of(ids, text), (std::vector<std::int64_t>{0, 0, 1, 1, 1, 2}))
      << "a special token that the text does not show";
  const auto length = static_cast<std::int64_t>(tokenizer().token_bytes(2).size());
  EXPECT_EQ(offsets_of(ids, std::string(tokenizer().token_bytes(2)) + text)[1], length);
}

}  // namespace
}  // namespace halfbyte::server
