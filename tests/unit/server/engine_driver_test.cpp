// SPDX-License-Identifier: Apache-2.0
//
// Clients that take nothing for a while, over an engine whose answers are known (fake_model.h).
#include "server/engine_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <map>
#include <thread>

#include "unit/engine/fake_model.h"

namespace halfbyte::server {
namespace {

using halfbyte::test::copy_of;
using halfbyte::test::expected_tokens;
using halfbyte::test::FakeControl;
using halfbyte::test::FakeOptions;
using halfbyte::test::make_request;
using halfbyte::test::start_fake_engine;

constexpr std::size_t kMaxEvents = 8;

Request long_request(std::uint32_t seed) {
  Request request = make_request(20, seed, 100);
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<std::int32_t> tokens_of(const Request& request) {
  return expected_tokens(request, FakeOptions().max_context_tokens);
}

// For a while, at most.
template <typename Condition>
bool wait_until(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return condition();
}

// What a client has taken of its request.
struct Client {
  std::shared_ptr<EventQueue> queue = std::make_shared<EventQueue>("request");
  std::vector<std::int32_t> tokens = {};
  TokenEvent last = {};

  void take() {
    for (TokenEvent& event : queue->take()) {
      if (event.token_id >= 0) tokens.push_back(event.token_id);
      last = std::move(event);
    }
  }
  bool wait_for_end() {
    return wait_until([this] {
      take();
      return last.finish_reason != FinishReason::kNone;
    });
  }
};

// The engine waits before each step until the driver has delivered what the steps before have made,
// and has paused whom it must: a model that costs nothing would have ended before.
class SlowClient : public ::testing::Test {
 protected:
  SlowClient() {
    control_.before_forward = [this](int, const Batch& batch) {
      EXPECT_TRUE(wait_until([this] { return num_delivered_ >= num_made_; }));
      driver_.num_active();  // waits for the delivery of several at once
      num_made_ += static_cast<std::int64_t>(batch.logit_rows.size());
      return Status();
    };
  }

  RequestId submit(const Request& request, Client& client) {
    client.queue->on_push([this] { ++num_delivered_; });
    return driver_.submit(copy_of(request), client.queue).value();
  }
  // Its first request is paused: nobody takes its events.
  void pause_one() {
    request_id_ = submit(request_, client_);
    ASSERT_TRUE(wait_until([this] { return driver_.stats().paused == 1; }));
  }
  void expect_nothing_left() {
    EXPECT_TRUE(wait_until([this] {
      const EngineStats stats = driver_.stats();
      return stats.paused == 0 && stats.running == 0 && stats.free_blocks == stats.total_blocks;
    }));
  }

  std::atomic<std::int64_t> num_delivered_ = 0;
  std::int64_t num_made_ = 0;  // the engine's thread alone
  FakeControl control_;
  Client client_;
  EngineDriver driver_{start_fake_engine({}, control_), {.max_queued_events = kMaxEvents}};
  const Request request_ = long_request(1);
  RequestId request_id_ = 0;
};

TEST_F(SlowClient, GetsEveryTokenOnceItReads) {
  pause_one();
  EXPECT_GE(client_.queue->size(), kMaxEvents);
  ASSERT_TRUE(client_.wait_for_end());
  EXPECT_EQ(client_.tokens, tokens_of(request_));
  EXPECT_EQ(client_.last.finish_reason, FinishReason::kLength);
  expect_nothing_left();
}

// Whoever takes the events resumes the request: the driver's thread, held up here, has no part in
// it.
TEST_F(SlowClient, IsResumedByWhatTakesItsEvents) {
  pause_one();
  std::promise<void> entered, opened;
  Client other;
  other.queue->on_push([&, open = opened.get_future().share()] {
    ++num_delivered_;
    entered.set_value();
    open.wait();
  });
  ASSERT_TRUE(driver_.submit(make_request(5, 3, 1), other.queue).ok());
  entered.get_future().wait();
  const std::int64_t num_forwards = control_.num_forwards;
  client_.take();
  EXPECT_TRUE(wait_until([&] { return control_.num_forwards > num_forwards; }));
  opened.set_value();
  ASSERT_TRUE(client_.wait_for_end());
  EXPECT_EQ(client_.tokens, tokens_of(request_));
}

// The shared queue is full for both; each is paused with its own next token, and both go on.
TEST_F(SlowClient, MayHaveSeveralSequences) {
  const Request other = long_request(2);
  pause_one();
  const RequestId other_id = submit(other, client_);
  ASSERT_TRUE(wait_until([this] { return driver_.stats().paused == 2; }));
  std::map<RequestId, std::vector<std::int32_t>> tokens;
  int num_ended = 0;
  ASSERT_TRUE(wait_until([&] {
    for (const TokenEvent& event : client_.queue->take()) {
      tokens[event.request_id].push_back(event.token_id);
      num_ended += event.finish_reason != FinishReason::kNone ? 1 : 0;
    }
    return num_ended == 2;
  }));
  EXPECT_EQ(tokens[request_id_], tokens_of(request_));
  EXPECT_EQ(tokens[other_id], tokens_of(other));
}

TEST_F(SlowClient, HoldsUpNobodyElse) {
  pause_one();
  Client other;
  const Request request = long_request(2);
  submit(request, other);
  ASSERT_TRUE(other.wait_for_end());
  EXPECT_EQ(other.tokens, tokens_of(request));
  EXPECT_EQ(driver_.stats().paused, 1);
  EXPECT_EQ(driver_.num_active(), 1) << "a shutdown waits for it";
}

TEST_F(SlowClient, MayLeave) {
  pause_one();
  driver_.cancel(request_id_);
  expect_nothing_left();
  EXPECT_EQ(driver_.num_active(), 0);
}

TEST_F(SlowClient, MayBeAborted) {
  pause_one();
  EXPECT_EQ(driver_.abort_request("request"), 1);
  ASSERT_TRUE(client_.wait_for_end());
  EXPECT_EQ(client_.last.finish_reason, FinishReason::kCancelled);
  expect_nothing_left();
}

TEST_F(SlowClient, IsToldOfTheEnd) {
  pause_one();
  driver_.end_all("the server is shutting down");
  ASSERT_TRUE(client_.wait_for_end());
  EXPECT_EQ(client_.last.finish_reason, FinishReason::kError);
  EXPECT_EQ(client_.last.error, "the server is shutting down");
  expect_nothing_left();
}

// The watchdog waits for steps of engines in which something runs or waits.
TEST_F(SlowClient, IsNoStepThatDoesNotReturn) {
  pause_one();
  const EngineStats stats = driver_.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
}

// The step is under way before the watch begins.
TEST(Watchdog, TellsWhatTheStepComputes) {
  std::latch gate{1};
  std::promise<void> entered;
  FakeControl control;
  control.before_forward = [&](int, const Batch&) {
    entered.set_value();
    gate.wait();
    return Status(StatusCode::kDeviceError, "over");
  };
  auto engine = start_fake_engine({}, control);
  ASSERT_TRUE(engine->submit(long_request(1)).ok());
  entered.get_future().wait();
  std::promise<std::string> told;
  {
    EngineDriver driver(std::move(engine), {.watchdog_timeout = std::chrono::milliseconds(20),
                                            .notice = [&told](std::string_view line) {
                                              told.set_value(std::string(line));
                                            }});
    EXPECT_THAT(told.get_future().get(),
                testing::HasSubstr("it has 1 requests with 20 tokens of prompts and 0 of answers"));
    gate.count_down();
  }
}

}  // namespace
}  // namespace halfbyte::server
