// SPDX-License-Identifier: Apache-2.0
//
// Requests through everything but the sockets, on an engine whose answers are known (fake_model.h)
// and the shipped model's tokenizer.
#ifndef HALFBYTE_TESTS_UNIT_SERVER_API_FIXTURE_H_
#define HALFBYTE_TESTS_UNIT_SERVER_API_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "server/api.h"
#include "unit/engine/fake_model.h"
#include "unit/server/token_events.h"

namespace halfbyte::server {

using halfbyte::test::expected_tokens;
using halfbyte::test::fake_prompt;
using halfbyte::test::FakeControl;
using halfbyte::test::FakeOptions;
using halfbyte::test::kFakeEos;
using halfbyte::test::start_fake_engine;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// What a client sees of an answer.
struct Received {
  int status = 200;
  std::string body;
};

// Waits as a connection does: for wake-ups.
inline Received receive(PendingAnswer& pending) {
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
      const auto limit = std::min(std::chrono::steady_clock::now() + 1s, pending.deadline());
      woken.wait_until(lock, limit, [&] { return signalled; });
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

// Two neighbours of ASCII inside a text, some way from its start.
inline std::string ascii_part(const std::string& text) {
  for (std::size_t i = 6; i + 2 < text.size(); ++i) {
    if ((text[i] & 0x80) == 0 && (text[i + 1] & 0x80) == 0) return text.substr(i, 2);
  }
  return {};
}

inline ApiOptions served_as(const std::string& name) {
  ApiOptions options;
  options.model_names = {name};
  options.version = "1.2.3";
  return options;
}

class ApiTest : public ::testing::Test {
 protected:
  explicit ApiTest(std::unique_ptr<ModelText> text = load_text())
      : api_(served_as("fake"), std::move(text)) {}

  void make_ready(const FakeOptions& options = {}, std::int64_t max_queued = 100) {
    make_ready(options, {.max_queued_requests = max_queued});
  }
  void make_ready(const FakeOptions& options, DriverOptions driver) {
    api_.set_ready(start_fake_engine(options, control_), options.max_context_tokens,
                   std::move(driver));
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
  Received ask(const std::string& path, const Json& body) {
    HttpReply reply = send("POST", path, to_text(body));
    if (auto* response = std::get_if<HttpResponse>(&reply))
      return {response->status, response->body};
    return receive(*std::get<std::shared_ptr<PendingAnswer>>(reply));
  }
  Received complete(const Json& body) { return ask("/v1/completions", body); }
  Json complete_ok(const Json& body) {
    const Received received = complete(body);
    EXPECT_EQ(received.status, 200) << received.body;
    return Json::parse(received.body);
  }
  std::shared_ptr<PendingAnswer> start(const Json& body) {
    HttpReply reply = send("POST", "/v1/completions", to_text(body));
    return std::get<std::shared_ptr<PendingAnswer>>(reply);
  }
  static double value_in(const std::string& metrics, const std::string& name) {
    const std::size_t at = metrics.find("\n" + name + "{");
    if (at == std::string::npos) return -1.0;
    return std::stod(metrics.substr(metrics.find("} ", at) + 2));
  }
  double metric(const std::string& name) { return value_in(get("/metrics").body, name); }
  // Nothing runs and nothing waits, in one answer: between two a request may go from here to there.
  bool wait_until_idle() {
    for (int i = 0; i < 2000; ++i) {
      const std::string metrics = get("/metrics").body;
      if (value_in(metrics, "halfbyte:num_running_reqs") == 0.0 &&
          value_in(metrics, "halfbyte:num_queue_reqs") == 0.0)
        return true;
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
    return tokenizer().decode(tokens, true);
  }
  static Json body_for(const std::vector<std::int32_t>& prompt, std::int64_t limit) {
    return {{"prompt", prompt}, {"max_tokens", limit}, {"temperature", 0}};
  }

  std::latch gate_{1};  // these two outlive the engine
  FakeControl control_;
  Api api_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_TESTS_UNIT_SERVER_API_FIXTURE_H_
