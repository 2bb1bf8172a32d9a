// SPDX-License-Identifier: Apache-2.0
//
// One rank. Expected tokens come from expected_tokens(): the fake model's hash of a request's own
// tokens, computed alone and without a cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <new>
#include <numeric>
#include <thread>

#include "fake_model.h"

namespace halfbyte::test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

// Prompts of 1 to 60 tokens; greedy, top-k and top-p requests in turn.
std::vector<Request> mixed_requests(std::uint32_t count) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    Request request = make_request(1 + (i * 23) % 60, i, 5 + (i * 7) % 40);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.top_k = i % 3 == 1 ? 7 : 0;
    request.sampling.top_p = i % 3 == 2 ? 0.8F : 1.0F;
    request.sampling.seed = i;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Runs them all together and holds each to its own expectation.
void expect_own_tokens(Engine& engine, FakeControl& control, const std::vector<Request>& requests) {
  const std::vector<RequestId> ids = submit_together(engine, control, requests);
  const auto answers = collect(engine, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256))
        << "request " << i << " " << answers.at(ids[i]).error;
  }
}

void expect_own_tokens(Engine& engine, const Request& request) {
  const RequestId id = engine.submit(copy_of(request)).value();
  EXPECT_EQ(collect(engine, {id}).at(id).tokens, expected_tokens(request, 256));
}

TEST(Engine, GivesTheModelsTokensOneByOne) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  expect_own_tokens(*engine, make_request(5, 1, 20));
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
  EXPECT_EQ(engine->stats().prefill_tokens, 5);
}

TEST(Engine, ARequestsTokensDoNotDependOnItsBatch) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 200}, control);
  expect_own_tokens(*engine, control, mixed_requests(24));
  EXPECT_EQ(engine->stats().free_blocks, 200);
  EXPECT_EQ(engine->stats().running, 0);
}

TEST(Engine, ChunksChangeNoTokenAndHoldTheBudget) {
  for (const std::int64_t chunk : {1, 3, 16, 17}) {
    FakeControl control;
    const auto engine = start_fake_engine({.num_blocks = 200,
                                           .max_step_tokens = 20,
                                           .max_prefill_tokens = chunk,
                                           .max_running_requests = 8},
                                          control);
    expect_own_tokens(*engine, control, mixed_requests(12));
    EXPECT_LE(control.largest_batch, std::min<std::int64_t>(20, chunk + 8));
  }
}

TEST(Engine, RunningOutOfBlocksChangesNoToken) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 8, .max_prefill_tokens = 13}, control);
  const std::vector<Request> requests = mixed_requests(24);
  expect_own_tokens(*engine, control, requests);
  EXPECT_GT(engine->stats().preemptions, 0);
  EXPECT_EQ(engine->stats().free_blocks, 8);
}

TEST(Engine, StopIdsEndARequestAndAreItsLastToken) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = make_request(6, 3, 30);
  request.sampling.ignore_eos = true;
  const std::vector<std::int32_t> all = expected_tokens(request, 256);
  request.sampling.stop_token_ids = {all[4], all[9]};
  const RequestId id = engine->submit(copy_of(request)).value();
  const Answer answer = collect(*engine, {id}).at(id);
  EXPECT_EQ(answer.finish_reason, FinishReason::kStop);
  EXPECT_EQ(answer.tokens, expected_tokens(request, 256));
  EXPECT_EQ(answer.tokens.back(), all[answer.tokens.size() - 1]);
  EXPECT_LE(answer.tokens.size(), 5U);
}

// A prompt whose greedy answer holds the end-of-text id, found by trying.
Request request_with_eos() {
  for (std::uint32_t seed = 0;; ++seed) {
    Request request = make_request(8, seed, 60);
    const auto tokens = expected_tokens(request, 256);
    if (tokens.back() == kFakeEos && tokens.size() > 2) return request;
  }
}

TEST(Engine, TheModelsEndOfTextStopsUnlessIgnored) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = request_with_eos();
  const std::size_t length = expected_tokens(request, 256).size();
  const RequestId id = engine->submit(copy_of(request)).value();
  EXPECT_EQ(collect(*engine, {id}).at(id).finish_reason, FinishReason::kStop);

  // On the last allowed token it is still a stop.
  request.sampling.max_new_tokens = static_cast<std::int64_t>(length);
  const RequestId last = engine->submit(copy_of(request)).value();
  EXPECT_EQ(collect(*engine, {last}).at(last).finish_reason, FinishReason::kStop);

  request.sampling.ignore_eos = true;
  request.sampling.max_new_tokens = static_cast<std::int64_t>(length) + 3;
  const RequestId ignoring = engine->submit(copy_of(request)).value();
  const Answer answer = collect(*engine, {ignoring}).at(ignoring);
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), length + 3);
}

TEST(Engine, MaxNewTokensAndTheContextEndARequestByLength) {
  FakeControl control;
  const auto engine = start_fake_engine({.max_context_tokens = 40}, control);
  Request request = make_request(30, 1, 4);
  request.sampling.ignore_eos = true;
  const RequestId limited = engine->submit(copy_of(request)).value();
  EXPECT_EQ(collect(*engine, {limited}).at(limited).tokens.size(), 4U);

  request.sampling.max_new_tokens = std::numeric_limits<std::int64_t>::max();
  const RequestId clamped = engine->submit(copy_of(request)).value();
  const Answer answer = collect(*engine, {clamped}).at(clamped);
  EXPECT_EQ(answer.tokens.size(), 10U);
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
}

TEST(Engine, RefusesWhatCannotBeServedAndStillServesTheNext) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 4, .max_context_tokens = 100}, control);
  const auto refusal = [&](const Request& request) {
    auto id = engine->submit(copy_of(request));
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    return std::string(id.status().message());
  };
  EXPECT_EQ(refusal({}), "the prompt has no tokens, want at least 1");
  Request request = make_request(5, 1, 5);
  request.prompt_ids[3] = static_cast<std::int32_t>(kFakeVocab);
  EXPECT_EQ(refusal(request), "prompt token 3 is 101, want 0 to 100: the model's vocabulary");
  request.prompt_ids[3] = -1;
  EXPECT_THAT(refusal(request), HasSubstr("prompt token 3 is -1"));
  EXPECT_EQ(refusal(make_request(100, 1, 5)),
            "the prompt has 100 tokens, want fewer than the context of 100: shorten it");
  // 60 + 5 tokens, of which the last is never cached, need exactly 4 blocks; one more does not fit.
  EXPECT_THAT(refusal(make_request(60, 1, 6)),
              HasSubstr("need 5 cache blocks of 16 tokens, the KV cache has 4"));
  request = make_request(5, 1, 5);
  request.sampling.top_p = 2;
  EXPECT_THAT(refusal(request), HasSubstr("top_p is 2"));
  expect_own_tokens(*engine, make_request(60, 1, 5));
}

// A gate that holds the model inside a forward until the test opens it.
struct Gate {
  std::promise<void> opened;
  std::shared_future<void> open = opened.get_future().share();
  std::promise<void> entered;
  std::atomic<bool> was_entered{false};
  std::function<Status(int, const Batch&)> hook() {
    return [this](int, const Batch&) {
      if (!was_entered.exchange(true)) entered.set_value();
      open.wait();
      return Status();
    };
  }
};

// 24 requests of several steps each: what is counted is counted once.
TEST(Engine, CountsEachStepAndEachRequestsWaitOnce) {
  FakeControl control;
  const auto engine = start_fake_engine({.max_running_requests = 4}, control);
  expect_own_tokens(*engine, control, mixed_requests(24));
  const EngineHistograms histograms = engine->histograms();
  const EngineStats stats = engine->stats();
  const auto count = [](const Histogram& histogram) {
    return std::reduce(histogram.counts.begin(), histogram.counts.end());
  };
  EXPECT_EQ(count(histograms.queue_seconds), 24);
  EXPECT_GE(histograms.queue_seconds.sum, 0.0);
  EXPECT_EQ(count(histograms.step_tokens), stats.steps);
  EXPECT_EQ(count(histograms.step_host_seconds), stats.steps);
  EXPECT_LE(histograms.step_host_seconds.sum, histograms.prefill_step_seconds.sum +
                                                  histograms.decode_step_seconds.sum +
                                                  histograms.mixed_step_seconds.sum);
  EXPECT_EQ(histograms.step_tokens.sum,
            static_cast<double>(stats.prefill_tokens + stats.decode_tokens));
  EXPECT_EQ(count(histograms.prefill_step_seconds) + count(histograms.decode_step_seconds) +
                count(histograms.mixed_step_seconds),
            stats.steps);
  EXPECT_GT(count(histograms.decode_step_seconds), 0);
  EXPECT_EQ(stats.preempted, 0);
}

// While the model computes it.
TEST(Engine, TellsTheShapeOfTheStepUnderWay) {
  FakeControl control;
  Gate gate;
  control.before_forward = gate.hook();
  const auto engine = start_fake_engine({.max_prefill_tokens = 16}, control);
  Request request = make_request(20, 1, 2);
  request.sampling.ignore_eos = true;
  const RequestId id = engine->submit(std::move(request)).value();
  gate.entered.get_future().wait();
  StepShape shape = engine->stats().step;
  EXPECT_EQ(shape.num_requests, 1);
  EXPECT_EQ(shape.prefill_tokens, 16);
  EXPECT_EQ(shape.decode_tokens, 0);
  EXPECT_EQ(engine->stats().steps, 0);
  gate.opened.set_value();
  collect(*engine, {id});
  shape = engine->stats().step;
  EXPECT_EQ(shape.num_requests, 1);
  EXPECT_EQ(shape.prefill_tokens, 0);
  EXPECT_EQ(shape.decode_tokens, 1) << "of the last step: after one of 16 and one of 4 tokens";
}

// The fake model likes all ids alike.
TEST(Engine, NeverGivesAnIdThatIsNoToken) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_sampled_ids = 10}, control);
  std::vector<RequestId> ids;
  for (const float temperature : {0.0F, 1.0F}) {
    Request request = make_request(20, 1, 40);
    request.sampling.temperature = temperature;
    ids.push_back(engine->submit(std::move(request)).value());
  }
  for (const auto& [id, answer] : collect(*engine, ids)) {
    EXPECT_EQ(answer.tokens.size(), 40U);
    EXPECT_THAT(answer.tokens, Each(Lt(10)));
  }
}

TEST(Engine, CancelFreesTheBlocksWithinOneStep) {
  FakeControl control;
  Gate gate;
  control.before_forward = gate.hook();
  const auto engine = start_fake_engine({.max_running_requests = 1}, control);
  const RequestId running = engine->submit(make_request(20, 1, 200)).value();
  const RequestId waiting = engine->submit(make_request(20, 2, 200)).value();
  gate.entered.get_future().wait();
  engine->cancel(running);
  engine->cancel(waiting);
  engine->cancel(12345);  // unknown: no effect
  gate.opened.set_value();
  const auto answers = collect(*engine, {running, waiting});
  EXPECT_EQ(answers.at(running).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(answers.at(running).tokens.size(), 1U);  // of the step that was under way
  EXPECT_EQ(answers.at(waiting).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(control.num_forwards, 1);
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
  engine->cancel(running);  // it has ended: no second event
  EXPECT_TRUE(engine->poll(20).empty());
}

TEST(Engine, PollReturnsEmptyWhenNothingCame) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  EXPECT_TRUE(engine->poll(0).empty());
  EXPECT_TRUE(engine->poll(5).empty());
}

TEST(Engine, ScoreGivesTheLogitsOfEveryPosition) {
  for (const std::int64_t chunk : {64, 7}) {
    FakeControl control;
    const auto engine = start_fake_engine({.max_prefill_tokens = chunk}, control);
    const std::vector<std::int32_t> ids = fake_prompt(30, 4);
    auto scores = engine->score(ids);
    ASSERT_TRUE(scores.ok()) << scores.status().to_string();
    ASSERT_EQ(scores->size(), 30U * kFakeVocab);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = std::span(*scores).subspan(i * kFakeVocab, kFakeVocab);
      ASSERT_THAT(row, ElementsAreArray(fake_logits(std::span(ids).first(i + 1)))) << i;
    }
    EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
  }
}

TEST(Engine, ScoreTakesBlocksFromRunningRequestsWithoutChangingThem) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 4}, control);
  Request request = make_request(20, 1, 40);
  request.sampling.ignore_eos = true;
  const RequestId id = engine->submit(copy_of(request)).value();
  EXPECT_TRUE(engine->score(fake_prompt(64, 9)).ok());
  EXPECT_EQ(collect(*engine, {id}).at(id).tokens, expected_tokens(request, 256));
  EXPECT_FALSE(engine->score(fake_prompt(65, 9)).ok());
  EXPECT_FALSE(engine->score({}).ok());
  EXPECT_FALSE(engine->score({-1}).ok());
}

TEST(Engine, AFailureEndsEveryRequestAndRefusesNewOnesWithItsCause) {
  FakeControl control;
  std::atomic<int> calls{0};
  std::promise<void> submitted;
  control.before_forward = [&calls, all = submitted.get_future().share()](int, const Batch&) {
    all.wait();
    return ++calls < 3 ? Status() : Status(StatusCode::kDeviceError, "the device fell off");
  };
  const auto engine = start_fake_engine({.max_running_requests = 1}, control);
  const RequestId running = engine->submit(make_request(4, 1, 50)).value();
  const RequestId waiting = engine->submit(make_request(4, 2, 50)).value();
  submitted.set_value();
  const auto answers = collect(*engine, {running, waiting});
  for (const RequestId id : {running, waiting}) {
    EXPECT_EQ(answers.at(id).finish_reason, FinishReason::kError);
    EXPECT_THAT(answers.at(id).error, HasSubstr("the device fell off"));
  }
  EXPECT_EQ(answers.at(running).tokens.size(), 2U);
  auto refused = engine->submit(make_request(4, 1, 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kDeviceError);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("the device fell off"));
  EXPECT_FALSE(engine->score({1, 2}).ok());
  engine->cancel(running);
  EXPECT_TRUE(engine->poll(5).empty());
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(Engine, LogitsThatAreNoNumbersEndTheirOwnRequestOnly) {
  FakeControl control;
  Request poisoned = make_request(20, 1, 30);
  control.nan_after_token = kFakeEos;  // in no prompt
  poisoned.prompt_ids.back() = kFakeEos;
  Request healthy = make_request(20, 2, 30);
  ASSERT_THAT(expected_tokens(healthy, 256), Not(Contains(kFakeEos))) << "choose another seed";
  const auto engine = start_fake_engine({}, control);
  const RequestId bad = engine->submit(copy_of(poisoned)).value();
  const RequestId good = engine->submit(copy_of(healthy)).value();
  const auto answers = collect(*engine, {bad, good});
  EXPECT_EQ(answers.at(bad).finish_reason, FinishReason::kError);
  EXPECT_THAT(answers.at(bad).error, HasSubstr("logit of token 0 is nan"));
  EXPECT_EQ(answers.at(good).tokens, expected_tokens(healthy, 256));
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(Engine, AnExceptionOfTheModelIsAFailure) {
  FakeControl control;
  control.before_forward = [](int, const Batch&) -> Status { throw std::bad_alloc(); };
  const auto engine = start_fake_engine({}, control);
  const RequestId id = engine->submit(make_request(4, 1, 5)).value();
  EXPECT_EQ(collect(*engine, {id}).at(id).finish_reason, FinishReason::kError);
}

// More bytes than an address has room for: the allocation fails on every machine.
TEST(Engine, LogitsThatFindNoMemoryAreAFailure) {
  for (const int num_ranks : {1, 2}) {
    FakeControl control;
    const auto engine = start_fake_engine(
        {.num_ranks = num_ranks, .dp_size = num_ranks, .vocab_size = std::int64_t{1} << 61},
        control);
    const RequestId id = engine->submit(make_request(4, 1, 5)).value();
    const Answer answer = collect(*engine, {id}).at(id);
    EXPECT_EQ(answer.finish_reason, FinishReason::kError);
    EXPECT_EQ(answer.error_code, StatusCode::kOutOfMemory);
    EXPECT_THAT(answer.error, HasSubstr("the logits of 1 tokens"));
    EXPECT_EQ(engine->submit(make_request(4, 1, 5)).status().code(), StatusCode::kDeviceError);
    EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
  }
}

TEST(Engine, AFailureInsideScoreIsItsAnswer) {
  FakeControl control;
  control.before_forward = [](int, const Batch&) {
    return Status(StatusCode::kDeviceError, "the device fell off");
  };
  const auto engine = start_fake_engine({}, control);
  auto scores = engine->score({1, 2});
  ASSERT_FALSE(scores.ok());
  EXPECT_EQ(scores.status().code(), StatusCode::kDeviceError);
  while (engine->submit(make_request(4, 1, 5)).ok()) {
    std::this_thread::yield();
  }
}

TEST(Engine, ManyThreadsMaySubmitPollAndCancel) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 40}, control);
  constexpr int kThreads = 4;
  constexpr std::uint32_t kEach = 10;
  std::vector<std::vector<std::pair<RequestId, Request>>> submitted(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        Request request = make_request(1 + (t * kEach + i) % 30, t * 100 + i, 12);
        const RequestId id = engine->submit(copy_of(request)).value();
        submitted[t].emplace_back(id, std::move(request));
        if (i % 5 == 4) engine->cancel(submitted[t].back().first);
        engine->stats();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<RequestId> ids;
  for (const auto& list : submitted) {
    for (const auto& [id, request] : list) {
      ids.push_back(id);
    }
  }
  const auto answers = collect(*engine, ids);
  for (const auto& list : submitted) {
    for (const auto& [id, request] : list) {
      const Answer& answer = answers.at(id);
      std::vector<std::int32_t> want = expected_tokens(request, 256);
      if (answer.finish_reason == FinishReason::kCancelled) want.resize(answer.tokens.size());
      EXPECT_EQ(answer.tokens, want);
    }
  }
}

TEST(Engine, MayBeDestroyedWhileRequestsRun) {
  FakeControl control;
  auto engine = start_fake_engine({}, control);
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(engine->submit(make_request(10, i, 200)).ok());
  }
  engine->poll(50);
  engine.reset();
}

}  // namespace
}  // namespace halfbyte::test
