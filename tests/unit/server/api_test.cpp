// SPDX-License-Identifier: Apache-2.0
//
// Requests through everything but the sockets, on an engine whose answers are known (fake_model.h)
// and the shipped model's tokenizer.
#include "server/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <thread>

#include "unit/engine/fake_model.h"

namespace halfbyte::server {
namespace {

using halfbyte::testing::expected_tokens;
using halfbyte::testing::fake_prompt;
using halfbyte::testing::FakeControl;
using halfbyte::testing::FakeOptions;
using halfbyte::testing::kFakeEos;
using halfbyte::testing::start_fake_engine;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::unique_ptr<ModelText> load_text() {
  auto text =
      ModelText::load(std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4", false);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return std::move(text).value();
}

// What a client sees of an answer.
struct Received {
  int status = 200;
  std::string body;
};

// Waits as a connection does: for wake-ups.
Received receive(PendingAnswer& pending) {
  std::mutex mutex;
  std::condition_variable woken;
  bool signalled = true;
  pending.on_progress([&] {
    const std::lock_guard lock(mutex);
    signalled = true;
    woken.notify_one();
  });
  Received received;
  bool done = false;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!done && std::chrono::steady_clock::now() < deadline) {
    {
      std::unique_lock lock(mutex);
      woken.wait_for(lock, 1s, [&] { return signalled; });
      signalled = false;
    }
    PendingAnswer::Progress progress = pending.advance();
    received.body += progress.bytes;
    if (progress.response) received = {progress.response->status, progress.response->body};
    done = progress.done;
  }
  pending.on_progress(nullptr);
  EXPECT_TRUE(done) << "no end within 20 s";
  return received;
}

// The events of a stream, without the last, which is [DONE].
std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  std::string_view rest = body;
  while (!rest.empty()) {
    const std::size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    rest.remove_prefix(end + 2);
    if (event == "data: [DONE]") {
      EXPECT_TRUE(rest.empty()) << "something after [DONE]";
      return events;
    }
    events.push_back(Json::parse(event.substr(6)));
  }
  ADD_FAILURE() << "no [DONE]: " << body;
  return events;
}

// Two neighbours of ASCII inside a text, some way from its start.
std::string ascii_part(const std::string& text) {
  for (std::size_t i = 6; i + 2 < text.size(); ++i) {
    if ((text[i] & 0x80) == 0 && (text[i + 1] & 0x80) == 0) return text.substr(i, 2);
  }
  return {};
}

class ApiTest : public ::testing::Test {
 protected:
  void make_ready(const FakeOptions& options = {}, std::int64_t max_queued = 100) {
    api_.set_ready(start_fake_engine(options, control_), options.max_context_tokens, max_queued);
  }

  HttpReply send(const std::string& method,
                 const std::string& path,
                 const std::string& body = "",
                 const std::string& type = "application/json") {
    return api_.handle({method, path, type, "", body});
  }
  Received get(const std::string& path) {
    const HttpReply reply = send("GET", path);
    const auto& response = std::get<HttpResponse>(reply);
    return {response.status, response.body};
  }
  Received complete(const Json& body) {
    HttpReply reply = send("POST", "/v1/completions", to_text(body));
    if (auto* response = std::get_if<HttpResponse>(&reply))
      return {response->status, response->body};
    return receive(*std::get<std::shared_ptr<PendingAnswer>>(reply));
  }
  Json complete_ok(const Json& body) {
    const Received received = complete(body);
    EXPECT_EQ(received.status, 200) << received.body;
    return Json::parse(received.body);
  }
  std::shared_ptr<PendingAnswer> start(const Json& body) {
    HttpReply reply = send("POST", "/v1/completions", to_text(body));
    return std::get<std::shared_ptr<PendingAnswer>>(reply);
  }
  double metric(const std::string& name) {
    const std::string text = get("/metrics").body;
    const std::size_t at = text.find("\n" + name + "{");
    if (at == std::string::npos) return -1.0;
    return std::stod(text.substr(text.find("} ", at) + 2));
  }
  bool wait_for(const std::string& name, double value) {
    for (int i = 0; i < 500; ++i) {
      if (metric(name) == value) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  // The text and the tokens that a request must get.
  std::vector<std::int32_t> tokens_for(const std::vector<std::int32_t>& prompt,
                                       std::int64_t limit) {
    Request request{prompt, {}};
    request.sampling.max_new_tokens = limit;
    return expected_tokens(request, FakeOptions{}.max_context_tokens);
  }
  std::string text_for(std::vector<std::int32_t> tokens) {
    if (!tokens.empty() && tokens.back() == kFakeEos) tokens.pop_back();
    return load_text()->tokenizer().decode(tokens, true);
  }
  static Json body_for(const std::vector<std::int32_t>& prompt, std::int64_t limit) {
    return {{"prompt", prompt}, {"max_tokens", limit}, {"temperature", 0}};
  }

  std::latch gate_{1};  // these two outlive the engine
  FakeControl control_;
  Api api_{{.model_names = {"fake"}, .api_keys = {}, .version = "1.2.3", .notice = nullptr},
           load_text()};
};

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
  EXPECT_TRUE(wait_for("halfbyte:num_running_reqs", 0.0)) << "the rest is cancelled";
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
  for (const char* bad : {R"({"prompt": ""})", R"({"prompt": [101]})", R"({"prompt": [1], "n": 0})",
                          R"({"prompt": [1], "stop_token_ids": [101]})", "{", R"({"prompt": 3})",
                          R"({"prompt": [1], "temperature": -1})"}) {
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
  EXPECT_TRUE(wait_for("halfbyte:num_running_reqs", 0.0));
  EXPECT_TRUE(wait_for("halfbyte:num_queue_reqs", 0.0));
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
      EXPECT_EQ(std::get<HttpResponse>(reply).status, 429);
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
  EXPECT_EQ(get("/v1/models").status, 503);
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
  EXPECT_THAT(response.headers, ::testing::Contains(::testing::Pair("Allow", "POST")));
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
            load_text()->tokenizer().decode(std::vector<std::int32_t>{40, 41}, false));
}

TEST(ApiKeys, AreAskedForWhereverTheModelIsUsed) {
  Api api({.model_names = {"m"}, .api_keys = {"one", "two"}, .version = "", .notice = nullptr},
          load_text());
  const auto status = [&api](const std::string& path, const std::string& authorization) {
    const HttpReply reply = api.handle({"GET", path, "", authorization, ""});
    return std::get<HttpResponse>(reply).status;
  };
  for (const char* wrong : {"", "one", "Bearer ", "Bearer on", "Bearer onee", "Basic one"})
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
  EXPECT_EQ(status("/v1/models", "Bearer one"), 503) << "known, and loading";
  EXPECT_EQ(status("/v1/models", "Bearer two"), 503);
  EXPECT_EQ(status("/health", ""), 503);
  EXPECT_EQ(status("/version", ""), 200);
}

}  // namespace
}  // namespace halfbyte::server
