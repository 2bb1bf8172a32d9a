// SPDX-License-Identifier: Apache-2.0
//
// Keys, control, and what ends a request from outside.
#include "server/generation.h"
#include "unit/server/api_fixture.h"

namespace halfbyte::server {
namespace {

ApiOptions options_with(std::vector<std::string> keys, std::string admin_key) {
  ApiOptions options = served_as("m");
  options.api_keys = std::move(keys);
  options.admin_api_key = std::move(admin_key);
  return options;
}

TEST_F(ApiTest, SaysWhatItServesAndHow) {
  make_ready();
  const Json server = Json::parse(get("/server_info").body);
  EXPECT_EQ(server["version"], "1.2.3");
  EXPECT_EQ(server["engine"]["vocab_size"], 101);
  EXPECT_EQ(server["sampling_defaults"]["repetition_penalty"], 1.0);
  EXPECT_EQ(server["stats"]["num_free_tokens"], server["stats"]["max_total_num_tokens"]);
  const Json model = Json::parse(get("/model_info").body);
  EXPECT_EQ(model["max_model_len"], 256);
  EXPECT_EQ(model["is_generation"], true);
  EXPECT_EQ(get("/get_load").body,
            R"([{"dp_rank":0,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":0}])");
}

TEST_F(ApiTest, ProvesThatTheEngineSteps) {
  make_ready();
  HttpReply reply = send("GET", "/health_generate");
  const Received health = receive(*std::get<std::shared_ptr<PendingAnswer>>(reply));
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, R"({"status":"ready"})");
}

TEST_F(ApiTest, EndsTheRequestThatItIsToldTo) {
  control_.before_forward = [this](int, const Batch&) -> Status {
    gate_.wait();
    return {};
  };
  make_ready();
  Json body = body_for(fake_prompt(3, 1), 5);
  body["rid"] = "mine";
  const auto mine = start(body);
  body["rid"] = "other";
  const auto other = start(body);
  const auto abort = [this](const char* what) {
    const HttpReply reply = send("POST", "/abort_request", what);
    return std::get<HttpResponse>(reply).body;
  };
  EXPECT_EQ(abort(R"({"rid": "nobody's"})"), R"({"num_aborted":0})");
  EXPECT_EQ(abort(R"({"rid": "mine"})"), R"({"num_aborted":1})");
  EXPECT_THAT(abort("{}"), HasSubstr("rid is required"));
  gate_.count_down();
  const Received aborted = receive(*mine);
  EXPECT_EQ(aborted.status, 200);
  EXPECT_EQ(Json::parse(aborted.body)["id"], "mine");
  EXPECT_EQ(Json::parse(aborted.body)["choices"][0]["finish_reason"], "abort");
  EXPECT_NE(Json::parse(receive(*other).body)["choices"][0]["finish_reason"], "abort");
}

TEST_F(ApiTest, ForgetsCachedPrefixesWhenToldTo) {
  make_ready();
  const Json body = body_for(fake_prompt(40, 3), 3);
  complete_ok(body);
  EXPECT_EQ(std::get<HttpResponse>(send("POST", "/flush_cache")).status, 200);
  EXPECT_EQ(complete_ok(body)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

// A prompt's step gives the first of five tokens; what was before does not count.
TEST_F(ApiTest, ProfilesTheStepsBetweenStartAndStop) {
  make_ready();
  Json body = body_for(fake_prompt(7, 3), 5);
  body["ignore_eos"] = true;
  complete_ok(body_for(fake_prompt(9, 1), 3));
  EXPECT_THAT(ask("/stop_profile", {}).body, HasSubstr("no profile runs"));
  EXPECT_EQ(ask("/start_profile", {}).status, 200);
  EXPECT_THAT(ask("/start_profile", {}).body, HasSubstr("runs already"));
  complete_ok(body);
  const Json profile = Json::parse(ask("/stop_profile", {}).body);
  EXPECT_EQ(profile["steps"], 5);
  EXPECT_EQ(profile["prefill_tokens"], 7);
  EXPECT_EQ(profile["decode_tokens"], 4);
  EXPECT_EQ(profile["phases"]["prefill"]["steps"], 1);
  EXPECT_EQ(profile["phases"]["decode"]["steps"], 4);
  EXPECT_EQ(profile["phases"]["mixed"]["steps"], 0);
  EXPECT_GT(profile["seconds"].get<double>(), 0.0);
  EXPECT_EQ(ask("/stop_profile", {}).status, 400);
}

TEST(StepProfile, HasTheExpertsTokensOfItsTime) {
  EngineCounts begin, end;
  begin.load.resize(1);
  begin.load[0].counters.tokens_per_expert = {5, 1};
  end.load = begin.load;
  end.load[0].counters.tokens_per_expert = {5, 4};
  end.load[0].counters.num_steps = 2;
  const Json profile = profile_json(begin, end);
  EXPECT_EQ(profile["layers"][0]["tokens"], Json({0, 3}));
  EXPECT_EQ(profile["layers"][0]["steps"], 2);
  EXPECT_EQ(profile["layers"][0]["imbalance"], 2.0);
}

TEST_F(ApiTest, ReportsAStepThatNeverReturns) {
  control_.before_forward = [this](int, const Batch&) -> Status {
    gate_.wait();
    return {};
  };
  struct Notices {
    std::mutex mutex;
    std::vector<std::string> lines;
  };
  const auto notices =
      std::make_shared<Notices>();  // the driver's thread outlives this test's body
  const auto notice = [notices](std::string_view line) {
    const std::lock_guard lock(notices->mutex);
    notices->lines.emplace_back(line);
  };
  make_ready({}, {.watchdog_timeout = 50ms, .notice = notice});
  const Received answer = complete(body_for(fake_prompt(3, 1), 5));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("has not returned"));
  EXPECT_EQ(api_.state(), ServerState::kFailed);
  EXPECT_TRUE(api_.is_stuck());
  EXPECT_EQ(complete(body_for(fake_prompt(3, 1), 5)).status, 503);
  {
    const std::lock_guard lock(notices->mutex);
    EXPECT_THAT(notices->lines,
                ::testing::ElementsAre(HasSubstr("step 1 of the engine has not returned")));
  }
  gate_.count_down();  // so that the test can end
}

TEST(RequestTimeout, EndsWhatHasNoTokenYet) {
  std::latch gate{1};
  FakeControl control;
  control.before_forward = [&gate](int, const Batch&) -> Status {
    gate.wait();
    return {};
  };
  ApiOptions options = options_with({}, "");
  options.request_timeout = 30ms;
  Api api(options, load_text());
  api.set_ready(start_fake_engine({}, control), 256, {});
  for (const bool stream : {false, true}) {
    const Json body = {{"prompt", {1, 2, 3}}, {"stream", stream}};
    HttpReply reply =
        api.handle({"POST", "/v1/completions", "application/json", "", to_text(body)});
    const Received late = receive(*std::get<std::shared_ptr<PendingAnswer>>(reply));
    EXPECT_EQ(late.status, stream ? 200 : 408);
    EXPECT_THAT(late.body, HasSubstr("timeout_error"));
    EXPECT_THAT(late.body, HasSubstr("--request-timeout"));
  }
  const HttpReply metrics = api.handle({"GET", "/metrics", "", "", ""});
  EXPECT_THAT(std::get<HttpResponse>(metrics).body,
              ::testing::ContainsRegex("requests_total[{][^}]*status=\"408\"[^}]*[}] 2\n"));
  gate.count_down();
}

// Its client looks only after the limit; the first token had come in time.
TEST(RequestTimeout, IsNotThatOfARequestThatIsPaused) {
  const std::string one_paused = "num_paused_reqs{model_name=\"m\"} 1\n";
  FakeControl control;
  control.before_forward = [](int, const Batch&) -> Status {
    std::this_thread::sleep_for(1ms);  // else it has ended before it is paused
    return {};
  };
  ApiOptions options = options_with({}, "");
  options.request_timeout = 200ms;
  Api api(options, load_text());
  api.set_ready(start_fake_engine({}, control), 256, {.max_queued_events = 4});
  for (const bool stream : {false, true}) {
    const Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 100}, {"ignore_eos", true},
                       {"temperature", 0},    {"stream", stream},  {"return_token_ids", true}};
    HttpReply reply =
        api.handle({"POST", "/v1/completions", "application/json", "", to_text(body)});
    const auto& pending = std::get<std::shared_ptr<PendingAnswer>>(reply);
    std::string metrics;
    for (int i = 0; i < 2000 && metrics.find(one_paused) == std::string::npos; ++i) {
      std::this_thread::sleep_for(10ms);
      metrics = std::get<HttpResponse>(api.handle({"GET", "/metrics", "", "", ""})).body;
    }
    EXPECT_THAT(metrics, HasSubstr(one_paused));
    std::this_thread::sleep_until(pending->deadline());
    const Received answer = receive(*pending);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("\"finish_reason\":\"length\""));
  }
}

// A code that means a defect, as no request that was checked should get it from the engine.
TEST(Generation, TellsTheIdOfWhatTheEngineFailedAt) {
  FakeControl control;
  const auto driver =
      std::make_shared<EngineDriver>(start_fake_engine({}, control), DriverOptions{});
  const auto format = make_completion_format();
  for (const bool stream : {false, true}) {
    auto read =
        format->read({{"prompt", {1, 2, 3}}, {"stream", stream}}, scope_of(model_text(), 256));
    Generation failed(std::get<GenerationRequest>(std::move(read)), *format,
                      {.driver = driver,
                       .metrics = std::make_shared<Metrics>("m", false),
                       .tokenizer = &tokenizer(),
                       .context_tokens = 256},
                      "cmpl-1");
    failed.fail_to_begin({StatusCode::kInternal, "the scheduler is wrong"});
    EXPECT_FALSE(failed.streams());
    const PendingAnswer::Progress end = failed.advance();
    EXPECT_TRUE(end.done);
    ASSERT_TRUE(end.response);
    EXPECT_EQ(end.response->status, 500);
    EXPECT_EQ(Json::parse(end.response->body)["error"]["message"],
              "cmpl-1: internal: the scheduler is wrong");
    AccessRecord record;
    failed.describe(record);
    EXPECT_EQ(record.id, "cmpl-1");
    EXPECT_EQ(record.error, "internal: the scheduler is wrong");
  }
}

TEST(StreamInterval, PutsSeveralTokensIntoAnEvent) {
  FakeControl control;
  ApiOptions options = served_as("m");
  options.stream_interval = 4;
  Api api(options, load_text());
  api.set_ready(start_fake_engine({}, control), 256, {});
  Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 18}, {"ignore_eos", true}, {"temperature", 0}};
  const auto ask = [&] {
    HttpReply reply =
        api.handle({"POST", "/v1/completions", "application/json", "", to_text(body)});
    return receive(*std::get<std::shared_ptr<PendingAnswer>>(reply)).body;
  };
  const Json whole = Json::parse(ask());
  body["stream"] = true;
  const std::vector<Json> events = events_of(ask());
  std::string text;
  for (const Json& event : events)
    text += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(whole["choices"][0]["text"], text);
  EXPECT_LE(events.size(), 1U + 18U / 4U + 2U) << "the first token, every fourth, rest and finish";
}

TEST(ApiKeys, ProtectMetricsWhenAsked) {
  ApiOptions options = options_with({"client"}, "");
  const HttpRequest request{"GET", "/metrics", "", "", ""};
  Api open(options, load_text());
  EXPECT_EQ(std::get<HttpResponse>(open.handle(request)).status, 200);
  options.protect_metrics = true;
  Api closed(options, load_text());
  EXPECT_EQ(std::get<HttpResponse>(closed.handle(request)).status, 401);
}

TEST(ApiKeys, OfTheAdminOpenControl) {
  const auto status = [](Api& with, const std::string& path, const std::string& key) {
    const HttpReply reply = with.handle({"POST", path, "application/json", "Bearer " + key, "{}"});
    return std::get<HttpResponse>(reply).status;
  };
  Api keys(options_with({"client"}, "admin"), load_text());
  EXPECT_EQ(status(keys, "/flush_cache", "client"), 401);
  EXPECT_EQ(status(keys, "/flush_cache", "admin"), 503) << "known, and loading";
  EXPECT_EQ(status(keys, "/tokenize", "admin"), 503);
  Api no_admin(options_with({"client"}, ""), load_text());
  EXPECT_EQ(status(no_admin, "/abort_request", "client"), 401);
  Api only_admin(options_with({}, "admin"), load_text());
  EXPECT_EQ(status(only_admin, "/abort_request", "x"), 401);
  EXPECT_EQ(status(only_admin, "/tokenize", "x"), 503);
  Api open(options_with({}, ""), load_text());
  EXPECT_EQ(status(open, "/abort_request", ""), 503);
}

TEST(ApiKeys, AreAskedForWhereverTheModelIsUsed) {
  Api api(options_with({"one", "two"}, ""), load_text());
  const auto status = [&api](const std::string& path, const std::string& authorization) {
    const HttpReply reply = api.handle({"GET", path, "", authorization, ""});
    return std::get<HttpResponse>(reply).status;
  };
  for (const char* wrong :
       {"", "one", "Bearer", "Bearer ", "Bearer on", "Bearer onee", "Basic one", "Bearerone"})
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
  for (const char* right : {"Bearer one", "bearer one", "BEARER  one"})
    EXPECT_EQ(status("/v1/models", right), 503) << right << ": known, and loading";
  EXPECT_EQ(status("/v1/models", "Bearer two"), 503);
  EXPECT_EQ(status("/health", ""), 503);
  EXPECT_EQ(status("/version", ""), 200);
}

}  // namespace
}  // namespace halfbyte::server
