// SPDX-License-Identifier: Apache-2.0
//
// /generate, /v1/responses and /v1/messages through everything but the sockets.
#include <map>

#include "unit/server/api_fixture.h"
#include "unit/server/format_fixture.h"
#include "unit/server/text_folder.h"

namespace halfbyte::server {
namespace {

const std::string kGenerate = "/generate";
const std::string kResponses = "/v1/responses";
const std::string kMessages = "/v1/messages";

// The shipped model's tokenizer with a template that writes the few tokens that the fake model has:
// a "#" before each message.
std::unique_ptr<ModelText> load_text_with_marks() {
  const TextFolder folder;
  folder.write("chat_template.jinja",
               "{% for message in messages %}#{{ message.content }}{% endfor %}");
  return folder.loaded();
}

class FormatsTest : public ApiTest {
 protected:
  FormatsTest() : ApiTest(load_text_with_marks()) {}

  std::shared_ptr<PendingAnswer> start_at(const std::string& path, const Json& body) {
    HttpReply reply = send("POST", path, to_text(body));
    return std::get<std::shared_ptr<PendingAnswer>>(reply);
  }
  static Json request_for(const std::string& path) {
    if (path == kGenerate)
      return {{"input_ids", fake_prompt(7, 3)},
              {"sampling_params", {{"temperature", 0}, {"max_new_tokens", 20}}}};
    if (path == kResponses)
      return {{"input", "12"}, {"temperature", 0}, {"ignore_eos", true}, {"max_output_tokens", 20}};
    return {{"messages", Json::parse(R"([{"role": "user", "content": "12"}])")},
            {"temperature", 0},
            {"ignore_eos", true},
            {"max_tokens", 20}};
  }
};

// ---- /generate

TEST_F(FormatsTest, GeneratesWhatACompletionDoes) {
  make_ready();
  const auto prompt = fake_prompt(7, 3);
  const Json answer = Json::parse(ask(kGenerate, request_for(kGenerate)).body);
  EXPECT_EQ(answer["text"], text_for(tokens_for(prompt, 20)));
  EXPECT_EQ(answer["output_ids"], Json(tokens_for(prompt, 20)));
  EXPECT_EQ(answer["meta_info"]["prompt_tokens"], 7);
  EXPECT_GE(answer["meta_info"]["e2e_latency"].get<double>(), 0.0);
}

TEST_F(FormatsTest, GeneratesSeveralAnswersAsAList) {
  make_ready();
  Json body = request_for(kGenerate);
  body["input_ids"] = {fake_prompt(7, 3), fake_prompt(5, 4)};
  body["sampling_params"]["n"] = 2;
  const Json whole = Json::parse(ask(kGenerate, body).body);
  ASSERT_EQ(whole.size(), 4U);
  body["stream"] = true;
  std::map<std::size_t, Json> last;
  for (const Json& event : events_of(ask(kGenerate, body).body))
    last[event["index"].get<std::size_t>()] = event;
  ASSERT_EQ(last.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(last[i]["text"], whole[i]["text"]) << i;
    EXPECT_EQ(last[i]["output_ids"], whole[i]["output_ids"]) << i;
    EXPECT_EQ(last[i]["meta_info"]["finish_reason"], whole[i]["meta_info"]["finish_reason"]) << i;
  }
}

TEST_F(FormatsTest, GeneratesLogprobsOfThePromptToo) {
  make_ready();
  Json body = request_for(kGenerate);
  body["return_logprob"] = true;
  body["top_logprobs_num"] = 2;
  body["logprob_start_len"] = 0;
  const Json meta = Json::parse(ask(kGenerate, body).body)["meta_info"];
  EXPECT_EQ(meta["input_token_logprobs"].size(), 7U);
  EXPECT_TRUE(meta["input_token_logprobs"][0][0].is_null());
  EXPECT_EQ(meta["output_token_logprobs"].size(), meta["completion_tokens"]);
  EXPECT_EQ(meta["output_top_logprobs"][0].size(), 2U);
}

// ---- errors and keys

TEST_F(FormatsTest, AnswersARequestAfterEveryRefusal) {
  make_ready();
  const std::map<std::string, std::vector<const char*>> refused = {
      {kGenerate,
       {"{", "{}", R"({"text": "a", "input_ids": [1]})", R"({"input_ids": [101]})",
        R"({"input_ids": [1], "sampling_params": {"temperature": -1}})"}},
      {kResponses,
       {"{", "{}", R"({"input": [3]})", R"({"input": "1", "top_p": 2})",
        R"({"input": "1", "background": true})", R"({"input": "the"})"}},
      {kMessages,
       {"{", "{}", R"({"max_tokens": 1, "messages": [{"role": "user"}]})",
        R"({"max_tokens": 0, "messages": [{"role": "user", "content": "1"}]})"}}};
  for (const auto& [path, bodies] : refused) {
    for (const char* bad : bodies) {
      const HttpReply reply = send("POST", path, bad);
      const auto* response = std::get_if<HttpResponse>(&reply);
      ASSERT_NE(response, nullptr) << bad;
      EXPECT_EQ(response->status, 400) << bad;
      EXPECT_EQ(ask(path, request_for(path)).status, 200) << "after " << bad;
    }
  }
}

TEST_F(FormatsTest, EndsOneRequestWithItsOwnError) {
  make_ready();
  control_.nan_after_token = tokenizer().encode("2").value().front();
  for (const std::string& path : {kResponses, kMessages}) {
    Json body = request_for(path);
    const Received whole = ask(path, body);
    EXPECT_EQ(whole.status, 500) << path;
    EXPECT_TRUE(Json::parse(whole.body)["error"]["message"].is_string()) << whole.body;
    body["stream"] = true;
    const std::vector<Json> events = typed_events_of(ask(path, body).body);
    EXPECT_EQ(events.back()["type"], path == kMessages ? "error" : "response.failed");
  }
  EXPECT_EQ(api_.state(), ServerState::kReady);
}

TEST_F(FormatsTest, TellsErrorsInTheFormOfThePath) {
  make_ready();
  for (const std::string& path : {kResponses, kMessages}) {
    const HttpReply reply = send("POST", path, "{");
    const auto& response = std::get<HttpResponse>(reply);
    EXPECT_EQ(response.status, 400);
    const Json error = Json::parse(response.body);
    EXPECT_EQ(error["error"]["type"], "invalid_request_error") << path;
    EXPECT_EQ(error.contains("type"), path == kMessages) << path;
  }
  const HttpReply wrong = send("GET", kMessages);
  EXPECT_EQ(std::get<HttpResponse>(wrong).status, 405);
  EXPECT_EQ(Json::parse(std::get<HttpResponse>(wrong).body)["type"], "error");
  Json body = request_for(kMessages);
  body["model"] = "other";
  EXPECT_EQ(Json::parse(ask(kMessages, body).body)["error"]["type"], "not_found_error");
}

TEST(MessagesKeys, AreTakenFromEitherHeader) {
  ApiOptions options = served_as("m");
  options.api_keys = {"secret"};
  Api api(options, load_text());
  const auto status = [&api](const std::string& authorization, const std::string& key) {
    const HttpReply reply =
        api.handle({"POST", kMessages, "application/json", authorization, "{}", key});
    return std::get<HttpResponse>(reply).status;
  };
  EXPECT_EQ(status("", "secret"), 503) << "known, and loading";
  EXPECT_EQ(status("Bearer secret", ""), 503);
  EXPECT_EQ(status("", "wrong"), 401);
  EXPECT_EQ(status("", ""), 401);
  EXPECT_EQ(status("Bearer wrong", "secret"), 401) << "Authorization comes first";
}

// ---- stream and whole

TEST_F(FormatsTest, StreamsTheMessageThatItAnswersWhole) {
  make_ready();
  Json body = request_for(kMessages);
  const Json whole = Json::parse(ask(kMessages, body).body);
  EXPECT_EQ(whole["stop_reason"], "max_tokens") << "else the test is of little use";
  body["stream"] = true;
  std::string text;
  const std::vector<Json> events = typed_events_of(ask(kMessages, body).body);
  for (const Json& event : events) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(whole["content"][0]["text"], text);
  const Json& end = events[events.size() - 2];
  EXPECT_EQ(end["delta"]["stop_reason"], whole["stop_reason"]);
  EXPECT_EQ(end["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

TEST_F(FormatsTest, StreamsTheResponseThatItAnswersWhole) {
  make_ready();
  Json body = request_for(kResponses);
  Json whole = Json::parse(ask(kResponses, body).body);
  body["stream"] = true;
  std::string text;
  const std::vector<Json> events = typed_events_of(ask(kResponses, body).body);
  for (const Json& event : events) {
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
  }
  const Json& last = events.back()["response"];
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(whole["output"][0]["content"], last["output"][0]["content"]);
  EXPECT_EQ(whole["status"], last["status"]);
  EXPECT_EQ(whole["usage"]["output_tokens"], last["usage"]["output_tokens"]);
}

TEST_F(FormatsTest, CountsTheTokensOfAMessage) {
  make_ready();
  const HttpReply reply =
      send("POST", "/v1/messages/count_tokens", to_text(request_for(kMessages)));
  EXPECT_EQ(std::get<HttpResponse>(reply).body, R"({"input_tokens":3})");
}

// ---- stored responses

TEST_F(FormatsTest, GivesAResponseAgainAndGoesOnFromIt) {
  make_ready();
  Json body = request_for(kResponses);
  body["max_output_tokens"] = 1;  // a single character merges with nothing
  const Json first = Json::parse(ask(kResponses, body).body);
  const std::string path = "/v1/responses/" + first["id"].get<std::string>();
  EXPECT_EQ(Json::parse(get(path).body), first);
  body["previous_response_id"] = first["id"];
  const Json second = Json::parse(ask(kResponses, body).body);
  EXPECT_GE(second["usage"]["input_tokens"], 7) << "#12, the answer, #12";
  const HttpReply deleted = send("DELETE", path);
  EXPECT_EQ(Json::parse(std::get<HttpResponse>(deleted).body)["deleted"], true);
  EXPECT_EQ(get(path).status, 404);
  EXPECT_EQ(Json::parse(ask(kResponses, body).body)["error"]["param"], "previous_response_id");
}

TEST_F(FormatsTest, CancelsAResponseUnderWay) {
  control_.before_forward = [this](int, const Batch&) -> Status {
    gate_.wait();
    return {};
  };
  make_ready();
  Json body = request_for(kResponses);
  body["stream"] = true;
  const auto streamed = start_at(kResponses, body);
  std::string stream = streamed->advance().bytes;
  const std::string id = typed_events_of(stream)[0]["response"]["id"];
  const std::string path = "/v1/responses/" + id;
  EXPECT_EQ(Json::parse(get(path).body)["status"], "in_progress");
  const HttpReply cancelled = send("POST", path + "/cancel");
  EXPECT_EQ(Json::parse(std::get<HttpResponse>(cancelled).body)["status"], "cancelled");
  gate_.count_down();
  stream += receive(*streamed).body;
  EXPECT_EQ(typed_events_of(stream).back()["response"]["status"], "cancelled");
  EXPECT_EQ(Json::parse(get(path).body)["status"], "cancelled");
  const HttpReply again = send("POST", path + "/cancel");
  EXPECT_EQ(std::get<HttpResponse>(again).status, 400);
}

TEST_F(FormatsTest, KnowsNoResponseThatWasNotMade) {
  make_ready();
  EXPECT_EQ(get("/v1/responses/resp_x").status, 404);
  EXPECT_EQ(std::get<HttpResponse>(send("DELETE", "/v1/responses/resp_x")).status, 404);
  EXPECT_EQ(std::get<HttpResponse>(send("POST", "/v1/responses/resp_x/cancel")).status, 404);
  EXPECT_EQ(get("/v1/responses/").status, 404);
  const HttpReply wrong = send("PUT", "/v1/responses/resp_x");
  EXPECT_THAT(std::get<HttpResponse>(wrong).headers,
              ::testing::Contains(::testing::Pair("Allow", "GET, DELETE")));
}

}  // namespace
}  // namespace halfbyte::server
