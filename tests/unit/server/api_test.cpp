// SPDX-License-Identifier: Apache-2.0
//
// What requests get, and the life cycle.
#include <map>

#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

using ::testing::Contains;
using ::testing::Pair;

TEST_F(ApiTest, AnswersWithTheEnginesTokensAsText) {
  make_ready();
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const auto prompt = fake_prompt(7, seed);
    const auto tokens = tokens_for(prompt, 40);
    const Json answer = complete_ok(body_for(prompt, 40));
    const Json& choice = answer["choices"][0];
    EXPECT_EQ(choice["text"], text_for(tokens));
    EXPECT_EQ(choice["finish_reason"], tokens.back() == kFakeEos ? "stop" : "length");
    EXPECT_EQ(answer["usage"]["completion_tokens"], tokens.size());
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 7);
    EXPECT_EQ(answer["usage"]["total_tokens"], 7 + tokens.size());
    EXPECT_EQ(answer["object"], "text_completion");
    EXPECT_EQ(answer["model"], "fake");
  }
}

TEST_F(ApiTest, StreamsTheSameTextAsItAnswersWhole) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 40);
  body["n"] = 3;
  body["temperature"] = 1;
  body["seed"] = 5;
  const Json whole = complete_ok(body);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<Json> events = events_of(complete(body).body);
  std::vector<std::string> texts(3);
  std::vector<int> num_finishes(3);
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json& choice = events[i]["choices"][0];
    const auto index = choice["index"].get<std::size_t>();
    texts[index] += choice["text"].get<std::string>();
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
    if (choice["finish_reason"].is_null()) continue;
    ++num_finishes[index];
    EXPECT_EQ(choice["finish_reason"], whole["choices"][index]["finish_reason"]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["text"], texts[i]) << i;
    EXPECT_EQ(num_finishes[i], 1) << i;
  }
  EXPECT_EQ(events.back()["choices"], Json::array());
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  EXPECT_NE(texts[0], texts[1]) << "choices are drawn with seeds of their own";
}

TEST_F(ApiTest, NamesUsageOnlyWhereItIsAskedFor) {
  make_ready();
  Json body = body_for(fake_prompt(3, 1), 5);
  body["stream"] = true;
  for (const Json& event : events_of(complete(body).body))
    EXPECT_FALSE(event.contains("usage"));
}

TEST_F(ApiTest, TellsUsageInEveryEventWhereThatIsAskedFor) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 6);
  body["ignore_eos"] = true;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  std::int64_t num_tokens = 0;
  for (const Json& event : events_of(complete(body).body)) {
    ASSERT_TRUE(event["usage"].is_object()) << event;
    EXPECT_EQ(event["usage"]["prompt_tokens"], 7);
    const auto so_far = event["usage"]["completion_tokens"].get<std::int64_t>();
    EXPECT_GE(so_far, num_tokens);
    num_tokens = so_far;
  }
  EXPECT_EQ(num_tokens, 6);
}

TEST_F(ApiTest, GivesTheSameTextForTheSameSeed) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 30);
  body["temperature"] = 1;
  body["seed"] = 9;
  const Json first = complete_ok(body);
  EXPECT_EQ(complete_ok(body)["choices"], first["choices"]);
  body["seed"] = 10;
  EXPECT_NE(complete_ok(body)["choices"], first["choices"]);
}

TEST_F(ApiTest, CutsAtAStopString) {
  make_ready();
  const auto prompt = fake_prompt(7, 3);
  const std::string whole = text_for(tokens_for(prompt, 40));
  const std::string stop = ascii_part(whole);
  ASSERT_FALSE(stop.empty()) << whole;
  Json body = body_for(prompt, 40);
  body["stop"] = {"no such text", stop};
  const Json answer = complete_ok(body);
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], stop);
  EXPECT_LT(answer["usage"]["completion_tokens"], 40);
  EXPECT_TRUE(wait_until_idle()) << "the rest is cancelled";
}

// A bias of 100 is more than any difference of the fake's logits.
TEST_F(ApiTest, BiasesPenalisesAndKeepsToMinTokens) {
  make_ready();
  Json body = body_for({1, 2, 3}, 6);
  body["logit_bias"] = {{"40", 100}, {"41", 60}};
  body["return_token_ids"] = true;
  const auto ids = [&] { return complete_ok(body)["choices"][0]["token_ids"]; };
  EXPECT_EQ(ids(), Json::array({40, 40, 40, 40, 40, 40}));
  body["repetition_penalty"] = 2;  // halves the logit of 40 once it is there
  EXPECT_EQ(ids()[1], 41);
  body.erase("repetition_penalty");
  body["logit_bias"] = {{std::to_string(kFakeEos), 100}};
  EXPECT_EQ(ids(), Json::array({kFakeEos}));
  body["min_tokens"] = 3;
  EXPECT_GE(ids().size(), 3U);
  EXPECT_EQ(complete_ok(body)["choices"][0]["finish_reason"], "stop");
}

TEST_F(ApiTest, GivesALogprobForEachTokenInStreamAndWhole) {
  make_ready();
  const auto prompt = fake_prompt(7, 3);
  Json body = body_for(prompt, 40);
  body["stop"] = ascii_part(text_for(tokens_for(prompt, 40)));
  body["logprobs"] = 2;
  body["return_token_ids"] = true;
  const Json whole = complete_ok(body);
  const Json& want = whole["choices"][0]["logprobs"];
  const auto num_tokens = whole["usage"]["completion_tokens"].get<std::size_t>();
  body["stream"] = true;
  std::map<std::string, Json> got;
  for (const Json& event : events_of(complete(body).body)) {
    const Json& choice = event["choices"][0];
    for (const Json& id : choice["token_ids"])
      got["token_ids"].push_back(id);
    if (choice["logprobs"].is_null()) continue;
    for (const auto& [name, list] : choice["logprobs"].items()) {
      for (const Json& entry : list)
        got[name].push_back(entry);
    }
  }
  EXPECT_EQ(got["token_ids"], whole["choices"][0]["token_ids"]);
  for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(want[name].size(), num_tokens) << name;
    EXPECT_EQ(got[name], want[name]) << name;
  }
  for (const Json& logprob : want["token_logprobs"])
    EXPECT_LE(logprob.get<double>(), 0.0);
}

TEST_F(ApiTest, EchoesThePrompt) {
  make_ready();
  const auto prompt = fake_prompt(7, 3);
  Json body = body_for(prompt, 5);
  body["echo"] = true;
  body["n"] = 2;
  const std::string want = text_for(prompt) + text_for(tokens_for(prompt, 5));
  const Json choices = complete_ok(body)["choices"];
  EXPECT_EQ(choices[0]["text"], want);
  EXPECT_EQ(choices[1]["text"], want);
  body["stream"] = true;
  std::string streamed;
  for (const Json& event : events_of(complete(body).body)) {
    const Json& choice = event["choices"][0];
    if (choice["index"] == 1) streamed += choice["text"].get<std::string>();
  }
  EXPECT_EQ(streamed, want);
}

TEST_F(ApiTest, TellsHowMuchOfThePromptWasCached) {
  make_ready();
  const Json body = body_for(fake_prompt(40, 3), 3);
  const auto cached = [](const Json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(complete_ok(body)), 0);
  EXPECT_GE(cached(complete_ok(body)), 16);
  const double counted = metric("halfbyte:cached_tokens_total");
  EXPECT_GE(counted, 16.0);
  EXPECT_EQ(metric("halfbyte:cached_tokens_total"), counted) << "looking counts nothing";
  EXPECT_GT(metric("halfbyte:cache_hit_rate"), 0.0);
  Json salted = body;
  salted["cache_salt"] = "another client";
  EXPECT_EQ(cached(complete_ok(salted)), 0);
}

// A prompt's step gives the first of five tokens.
TEST_F(ApiTest, CountsTheEnginesStepsInItsMetrics) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 5);
  body["ignore_eos"] = true;
  complete_ok(body);
  EXPECT_EQ(metric("halfbyte:queue_time_seconds_count"), 1.0);
  EXPECT_EQ(metric("halfbyte:iteration_tokens_total_count"), 5.0);
  EXPECT_EQ(metric("halfbyte:iteration_tokens_total_sum"), 7.0 + 4.0);
  const std::string metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("step_seconds_count{phase=\"prefill\",model_name=\"fake\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("step_seconds_count{phase=\"decode\",model_name=\"fake\"} 4\n"));
}

TEST_F(ApiTest, StopsAtAStopTokenAndNamesIt) {
  make_ready();
  const auto prompt = fake_prompt(7, 3);
  const auto tokens = tokens_for(prompt, 40);
  Json body = body_for(prompt, 40);
  body["stop_token_ids"] = {tokens[2]};
  const Json answer = complete_ok(body);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], tokens[2]);
  EXPECT_EQ(answer["choices"][0]["text"], text_for({tokens[0], tokens[1]}));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
}

TEST_F(ApiTest, AnswersEveryPromptOfAList) {
  make_ready();
  const std::vector<std::vector<std::int32_t>> prompts = {fake_prompt(3, 1), fake_prompt(9, 2)};
  const Json answer = complete_ok({{"prompt", prompts}, {"max_tokens", 8}, {"temperature", 0}});
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(answer["choices"][i]["text"], text_for(tokens_for(prompts[i], 8)));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 12);
}

TEST_F(ApiTest, ClampsTheAnswerToTheContext) {
  make_ready();
  Json body = body_for(fake_prompt(250, 1), 100);
  body["ignore_eos"] = true;
  const Json answer = complete_ok(body);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST_F(ApiTest, AnswersARequestAfterEveryRefusal) {
  make_ready();
  const auto prompt = fake_prompt(7, 1);
  const Json good = body_for(prompt, 5);
  const std::string want = text_for(tokens_for(prompt, 5));
  for (const char* bad :
       {R"({"prompt": ""})", R"({"prompt": [101]})", R"({"prompt": [1], "n": 0})",
        R"({"prompt": [1], "stop_token_ids": [101]})", "{", R"({"prompt": 3})",
        R"({"prompt": [1], "temperature": -1})", R"({"prompt": [1], "logit_bias": {"101": 1}})",
        R"({"prompt": [1], "min_p": 2})", R"({"prompt": [1], "logprobs": 21})",
        R"({"prompt": [1], "repetition_penalty": 0})", R"({"prompt": [1], "min_tokens": 17})"}) {
    HttpReply reply = send("POST", "/v1/completions", bad);
    EXPECT_EQ(std::get<HttpResponse>(reply).status, 400) << bad;
    EXPECT_EQ(complete_ok(good)["choices"][0]["text"], want) << "after " << bad;
  }
}

TEST_F(ApiTest, EndsOneRequestWithItsOwnError) {
  make_ready();
  const auto prompt = fake_prompt(7, 1);
  control_.nan_after_token = prompt.back();
  Json body = body_for(prompt, 5);
  EXPECT_EQ(complete(body).status, 500);
  body["stream"] = true;
  const std::vector<Json> events = events_of(complete(body).body);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["error"]["type"], "server_error");
  EXPECT_EQ(api_.state(), ServerState::kReady);
  control_.nan_after_token = -1;
  EXPECT_EQ(complete(body_for(prompt, 5)).status, 200);
}

TEST_F(ApiTest, TurnsRedWhenTheEngineFails) {
  control_.before_forward = [](int, const Batch&) -> Status {
    return {StatusCode::kDeviceError, "the device is gone"};
  };
  make_ready();
  const Received answer = complete(body_for(fake_prompt(3, 1), 5));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the device is gone"));
  EXPECT_EQ(api_.state(), ServerState::kFailed);
  EXPECT_EQ(get("/health").status, 503);
  const Received later = complete(body_for(fake_prompt(3, 1), 5));
  EXPECT_EQ(later.status, 503);
  EXPECT_THAT(later.body, HasSubstr("the device is gone"));
}

TEST_F(ApiTest, FreesTheBlocksOfClientsThatLeave) {
  make_ready();
  const double free_blocks = metric("halfbyte:num_free_blocks");
  for (std::uint32_t i = 0; i < 100; ++i) {
    Json body = body_for(fake_prompt(20, i), 200);
    body["ignore_eos"] = true;
    body["stream"] = i % 2 == 0;
    start(body)->cancel();
  }
  EXPECT_TRUE(wait_until_idle());
  EXPECT_EQ(metric("halfbyte:num_free_blocks"), free_blocks);
  EXPECT_EQ(metric("halfbyte:num_aborted_requests_total"), 100.0);
  EXPECT_EQ(complete(body_for(fake_prompt(3, 1), 5)).status, 200);
}

TEST_F(ApiTest, RefusesMoreThanTheQueueHolds) {
  control_.before_forward = [this](int, const Batch&) -> Status {
    gate_.wait();
    return {};
  };
  make_ready({.max_running_requests = 1}, 2);
  std::vector<std::shared_ptr<PendingAnswer>> accepted;
  int num_refused = 0;
  for (std::uint32_t i = 0; i < 10; ++i) {
    HttpReply reply = send("POST", "/v1/completions", to_text(body_for(fake_prompt(3, i), 5)));
    if (auto* pending = std::get_if<std::shared_ptr<PendingAnswer>>(&reply)) {
      accepted.push_back(*pending);
    } else {
      const auto& response = std::get<HttpResponse>(reply);
      EXPECT_EQ(response.status, 429);
      EXPECT_THAT(response.headers, Contains(Pair("Retry-After", "1")));
      EXPECT_EQ(Json::parse(response.body)["error"]["type"], "rate_limit_error");
      ++num_refused;
    }
  }
  EXPECT_GE(num_refused, 7) << "one may run, two may wait";
  gate_.count_down();
  for (const auto& pending : accepted)
    EXPECT_EQ(receive(*pending).status, 200);
}

TEST_F(ApiTest, TellsClientsWhenItEndsTheirRequests) {
  control_.before_forward = [this](int, const Batch&) -> Status {
    gate_.wait();
    return {};
  };
  make_ready();
  Json body = body_for(fake_prompt(3, 1), 5);
  const auto whole = start(body);
  body["stream"] = true;
  const auto streamed = start(body);
  api_.drain();
  EXPECT_EQ(complete(body).status, 503);
  api_.end_all("the server is shutting down");
  const Received answer = receive(*whole);
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the server is shutting down"));
  EXPECT_EQ(events_of(receive(*streamed).body).back()["error"]["type"], "service_unavailable");
  gate_.count_down();
}

TEST_F(ApiTest, ServesManyClientsAtOnce) {
  make_ready();
  std::vector<std::thread> clients;
  for (std::uint32_t i = 0; i < 8; ++i) {
    clients.emplace_back([this, i] {
      const auto prompt = fake_prompt(5, i);
      const std::string want = text_for(tokens_for(prompt, 20));
      for (int repeat = 0; repeat < 3; ++repeat)
        EXPECT_EQ(complete_ok(body_for(prompt, 20))["choices"][0]["text"], want);
    });
  }
  for (std::thread& client : clients)
    client.join();
}

// ---- paths and life cycle

TEST_F(ApiTest, TellsWhereLoadingStands) {
  api_.set_progress(0.25);
  const Received health = get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, R"({"status":"loading","progress":0.25})");
  EXPECT_EQ(get("/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(get("/metrics").status, 200);
  for (const char* path : {"/v1/models", "/health"}) {
    const HttpReply refused = send("GET", path);
    EXPECT_EQ(std::get<HttpResponse>(refused).status, 503) << path;
    EXPECT_THAT(std::get<HttpResponse>(refused).headers, Contains(Pair("Retry-After", "1")))
        << path;
  }
  make_ready();
  EXPECT_EQ(get("/health").body, R"({"status":"ready"})");
  api_.drain();
  EXPECT_EQ(get("/health").body, R"({"status":"draining"})");
}

TEST_F(ApiTest, KnowsItsPathsAndMethods) {
  make_ready();
  EXPECT_EQ(get("/nothing").status, 404);
  EXPECT_EQ(get("/v1/models/").status, 404);
  const HttpReply wrong = send("GET", "/v1/completions");
  const auto& response = std::get<HttpResponse>(wrong);
  EXPECT_EQ(response.status, 405);
  EXPECT_THAT(response.headers, Contains(Pair("Allow", "POST")));
  EXPECT_EQ(std::get<HttpResponse>(send("POST", "/v1/completions", "{}", "text/plain")).status,
            415);
  EXPECT_EQ(std::get<HttpResponse>(
                send("POST", "/v1/completions", "{}", "application/json; charset=utf-8"))
                .status,
            400);
}

TEST_F(ApiTest, ListsItsModels) {
  make_ready();
  const Json list = Json::parse(get("/v1/models").body);
  EXPECT_EQ(list["data"][0]["id"], "fake");
  EXPECT_EQ(Json::parse(get("/v1/models/fake").body)["max_model_len"], 256);
  EXPECT_EQ(get("/v1/models/other").status, 404);
}

TEST_F(ApiTest, TokenizesAndBack) {
  make_ready();
  const auto reply = send("POST", "/tokenize", R"({"prompt": "What is 12 / 4?"})");
  const Json tokens = Json::parse(std::get<HttpResponse>(reply).body);
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  const auto bad = send("POST", "/detokenize", R"({"tokens": [101]})");
  EXPECT_EQ(std::get<HttpResponse>(bad).status, 400) << "beyond the model's vocabulary";
  const auto good = send("POST", "/detokenize", R"({"tokens": [40, 41]})");
  EXPECT_EQ(Json::parse(std::get<HttpResponse>(good).body)["text"],
            tokenizer().decode(std::vector<std::int32_t>{40, 41}, false));
}

}  // namespace
}  // namespace halfbyte::server
