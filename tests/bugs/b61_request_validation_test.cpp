// SPDX-License-Identifier: Apache-2.0
//
// B61: bad requests killed the engine, wrote into the logits of others, or were answered with 500.
// spec/server.md, section 2.
#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

constexpr std::int64_t kVocab = halfbyte::test::kFakeVocab;
constexpr std::int64_t kContext = 256;  // of the fake engine

class B61 : public ApiTest {
 protected:
  B61() { make_ready(); }

  // A good completion, but for `fields`.
  static Json body_with(const Json& fields) {
    Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 5}, {"temperature", 0}};
    body.update(fields);
    return body;
  }

  void expect_alive(const std::string& after) {
    const Received answer = complete(body_for(good_, 5));
    ASSERT_EQ(answer.status, 200) << "after " << after;
    EXPECT_EQ(Json::parse(answer.body)["choices"][0]["text"], want_) << "after " << after;
  }

  // In a stream too: the refusal comes before its first byte.
  void expect_refused(const Json& fields, const std::string& code = "") {
    for (const bool stream : {false, true}) {
      Json body = body_with(fields);
      body["stream"] = stream;
      const Received answer = complete(body);
      ASSERT_EQ(answer.status, 400) << body << ": " << answer.body;
      const Json code_got = Json::parse(answer.body)["error"]["code"];
      EXPECT_EQ(code_got, code.empty() ? Json() : Json(code)) << body;
      expect_alive(to_text(body));
    }
  }

  // The tokens and the reason of the end of an answer, whole and streamed.
  void expect_answer(const Json& fields, std::int64_t num_tokens, const std::string& reason) {
    Json body = body_with(fields);
    body["return_token_ids"] = true;
    const Json whole = complete_ok(body);
    EXPECT_EQ(whole["choices"][0]["finish_reason"], reason) << fields;
    EXPECT_EQ(whole["usage"]["completion_tokens"], num_tokens) << fields;
    body["stream"] = true;
    std::int64_t num_streamed = 0;
    Json last;
    for (const Json& event : events_of(complete(body).body)) {
      const Json& choice = event["choices"][0];
      num_streamed += std::ssize(choice.value("token_ids", Json::array()));
      if (!choice["finish_reason"].is_null()) last = choice["finish_reason"];
    }
    EXPECT_EQ(num_streamed, num_tokens) << fields;
    EXPECT_EQ(last, reason) << fields;
    expect_alive(to_text(fields));
  }

  const std::vector<std::int32_t> good_ = fake_prompt(7, 1);
  const std::string want_ = text_for(tokens_for(good_, 5));
};

TEST_F(B61, NothingToGoOnFrom) {
  for (const char* prompt : {R"("")", R"([""])", "[]", "[[]]", "null", R"(["", [1]])"})
    expect_refused({{"prompt", Json::parse(prompt)}});
}

TEST_F(B61, IdsOutsideTheModelsVocabulary) {
  for (const std::int64_t id :
       {kVocab, std::int64_t{-1}, std::int64_t{2047}, std::int64_t{1} << 40}) {
    expect_refused({{"prompt", Json::array({1, id})}});
    expect_refused({{"prompt", Json::array({Json::array({1, id})})}});
    expect_refused({{"stop_token_ids", Json::array({id})}});
    expect_refused({{"logit_bias", {{std::to_string(id), 1}}}});
  }
  const std::int64_t last = kVocab - 1;
  const Json harmless = {{"prompt", Json::array({1, last})},
                         {"stop_token_ids", Json::array({last})},
                         {"logit_bias", {{std::to_string(last), -100}}}};
  EXPECT_EQ(complete(body_with(harmless)).status, 200);
}

TEST_F(B61, LimitsThatAreNone) {
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31})
    expect_refused({{"max_tokens", limit}});
}

TEST_F(B61, PromptsAroundTheContext) {
  const auto prompt = [](std::int64_t length) { return Json(fake_prompt(length, 5)); };
  expect_answer({{"prompt", prompt(kContext - 1)}, {"ignore_eos", true}}, 1, "length");
  expect_refused({{"prompt", prompt(kContext)}}, "context_length_exceeded");
  expect_refused({{"prompt", prompt(4 * kContext)}}, "context_length_exceeded");
  expect_answer({{"prompt", prompt(kContext - 10)}, {"max_tokens", 100}, {"ignore_eos", true}}, 10,
                "length");
}

TEST_F(B61, SamplingOptionsOutOfRange) {
  for (const char* fields : {R"({"temperature": -1})", R"({"top_p": 0})", R"({"n": 0})",
                             R"({"top_k": -2})", R"({"temperature": "NaN"})"})
    expect_refused(Json::parse(fields));
  EXPECT_EQ(complete(body_with({{"temperature", 0}})).status, 200);
  for (const char* number : {"NaN", "Infinity", "1e999"}) {
    const std::string body = R"({"prompt": [1], "temperature": )" + std::string(number) + "}";
    const HttpReply reply = send("POST", "/v1/completions", body);
    const auto& response = std::get<HttpResponse>(reply);
    EXPECT_EQ(response.status, 400) << number;
    EXPECT_THAT(response.body, HasSubstr("invalid_json")) << number;
    expect_alive(body);
  }
}

TEST_F(B61, StopStringsThatStopAtOnce) {
  expect_refused({{"stop", ""}});
  expect_refused({{"stop", Json::array({""})}});
  expect_refused({{"stop", Json::array({"a", ""})}});
  expect_answer({{"stop", Json::array()}, {"ignore_eos", true}}, 5, "length");
}

}  // namespace
}  // namespace halfbyte::server
