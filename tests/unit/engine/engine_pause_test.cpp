// SPDX-License-Identifier: Apache-2.0
//
// Requests that are set aside while others run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "fake_model.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;

// Holds the model inside one forward pass, the first one being 1, until open().
class Gate {
 public:
  Gate(FakeControl& control, int forward) {
    control.before_forward = [this, forward](int, const Batch&) {
      if (++num_forwards_ == forward) {
        entered_.set_value();
        open_.wait();
      }
      return Status();
    };
  }
  void wait() { entered_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::atomic<int> num_forwards_ = 0;
  std::promise<void> entered_, opened_;
  std::shared_future<void> open_ = opened_.get_future().share();
};

// One engine, and what its requests have got so far.
class EnginePause : public ::testing::Test {
 protected:
  RequestId submit(std::int64_t prompt_tokens, std::uint32_t seed, std::int64_t new_tokens) {
    Request request = make_request(prompt_tokens, seed, new_tokens);
    request.sampling.ignore_eos = true;
    const RequestId id = engine_->submit(copy_of(request)).value();
    expected_[id] = expected_tokens(request, FakeOptions().max_context_tokens);
    return id;
  }

  // Polls until `done`, or for a while.
  template <typename Done>
  bool poll_until(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      for (const TokenEvent& event : engine_->poll(10)) {
        Answer& answer = answers_[event.request_id];
        if (event.token_id >= 0) answer.tokens.push_back(event.token_id);
        answer.finish_reason = event.finish_reason;
        answer.error = event.error;
      }
    }
    return done();
  }
  bool wait_for_end(RequestId id) {
    return poll_until([&] { return answers_[id].finish_reason != FinishReason::kNone; });
  }

  // The model inside its fourth step, in which and behind which `id` is paused.
  RequestId pause_one(const FakeOptions& options = {}) {
    Gate gate(control_, 4);
    engine_ = start_fake_engine(options, control_);
    const RequestId id = submit(20, 1, 100);
    gate.wait();
    engine_->set_paused(id, true);
    gate.open();
    EXPECT_TRUE(poll_until(
        [&] { return engine_->stats().paused == 1 && answers_[id].tokens.size() == 4; }));
    control_.before_forward = nullptr;  // nothing runs
    return id;
  }

  FakeControl control_;  // outlives the engine
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Answer> answers_;
  std::map<RequestId, std::vector<std::int32_t>> expected_;
};

TEST_F(EnginePause, ChangesNobodysTokens) {
  for (const bool keeps_prefixes : {false, true}) {
    const RequestId slow = pause_one({.keeps_prefixes = keeps_prefixes});
    const RequestId first = submit(30, 2, 40);
    const RequestId second = submit(5, 3, 40);
    ASSERT_TRUE(wait_for_end(first));
    ASSERT_TRUE(wait_for_end(second));
    EXPECT_EQ(answers_[slow].tokens.size(), 4U);
    engine_->set_paused(slow, false);
    const RequestId beside = submit(30, 4, 20);
    ASSERT_TRUE(wait_for_end(slow));
    ASSERT_TRUE(wait_for_end(beside));
    for (const RequestId id : {slow, first, second, beside})
      EXPECT_EQ(answers_[id].tokens, expected_[id]) << "request " << id;
    engine_.reset();
    answers_.clear();
  }
}

TEST_F(EnginePause, LeavesNothingTaken) {
  pause_one();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.free_blocks, stats.total_blocks);
  const std::int64_t num_forwards = control_.num_forwards;
  EXPECT_TRUE(engine_->poll(20).empty());
  EXPECT_EQ(control_.num_forwards, num_forwards);
}

TEST_F(EnginePause, DoesNotKeepARequestFromBeingCancelled) {
  const RequestId id = pause_one();
  engine_->cancel(id);
  ASSERT_TRUE(wait_for_end(id));
  EXPECT_EQ(answers_[id].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(engine_->stats().paused, 0);
}

TEST_F(EnginePause, EndsWithTheEngine) {
  const RequestId id = pause_one();
  control_.before_forward = [](int, const Batch&) {
    return Status(StatusCode::kDeviceError, "the device fell off");
  };
  submit(5, 2, 5);
  ASSERT_TRUE(wait_for_end(id));
  EXPECT_EQ(answers_[id].finish_reason, FinishReason::kError);
  EXPECT_THAT(answers_[id].error, HasSubstr("the device fell off"));
  engine_->set_paused(id, false);  // no effect
}

TEST_F(EnginePause, MayBeAskedForTwiceOrOfNobody) {
  const RequestId id = pause_one();
  engine_->set_paused(id, true);
  engine_->set_paused(12345, true);
  engine_->set_paused(12345, false);
  engine_->set_paused(id, false);
  engine_->set_paused(id, false);
  ASSERT_TRUE(wait_for_end(id));
  EXPECT_EQ(answers_[id].tokens, expected_[id]);
}

// It has no token that anybody could be slow to take.
TEST_F(EnginePause, HasNoEffectBeforeTheFirstStep) {
  Gate gate(control_, 1);
  engine_ = start_fake_engine({.max_running_requests = 1}, control_);
  const RequestId running = submit(20, 1, 3);
  const RequestId waiting = submit(20, 2, 3);
  gate.wait();
  engine_->set_paused(waiting, true);
  gate.open();
  ASSERT_TRUE(wait_for_end(running));
  ASSERT_TRUE(wait_for_end(waiting));
  EXPECT_EQ(answers_[waiting].tokens, expected_[waiting]);
}

}  // namespace
}  // namespace halfbyte::test
