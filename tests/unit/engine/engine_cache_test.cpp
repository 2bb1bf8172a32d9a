// SPDX-License-Identifier: Apache-2.0
//
// The prefix cache through the whole engine. The fake model reads every token back through the
// block table, so a block that holds anything else changes the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "fake_model.h"

namespace halfbyte::test {
namespace {

// Of the whole length, whatever it says.
Request whole_request(std::int64_t prompt_tokens, std::uint32_t seed, std::int64_t max_new_tokens) {
  Request request = make_request(prompt_tokens, seed, max_new_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

Answer run(Engine& engine, const Request& request) {
  const RequestId id = engine.submit(copy_of(request)).value();
  Answer answer = collect(engine, {id}).at(id);
  EXPECT_EQ(answer.tokens, expected_tokens(request, 256)) << answer.error;
  return answer;
}

// Prompts that share beginnings of 0, 16, .. 48 tokens with others, and end differently.
std::vector<Request> related_requests(std::uint32_t count) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    Request request = whole_request(5 + (i * 23) % 60, i % 3, 5 + (i * 7) % 40);
    if (i % 4 != 0) request.prompt_ids.back() = static_cast<std::int32_t>(i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = i;
    request.cache_salt = i % 5 == 0 ? "salt" : "";
    requests.push_back(std::move(request));
  }
  return requests;
}

// 60 prompt and 10 new tokens, the last of which is never computed: 69 tokens, four whole blocks.
TEST(EngineCache, TheNextTurnStartsBehindPromptAndAnswer) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = whole_request(60, 1, 10);
  const Answer first = run(*engine, request);
  EXPECT_EQ(first.cached_tokens, 0);
  request.prompt_ids.insert(request.prompt_ids.end(), first.tokens.begin(), first.tokens.end());
  request.prompt_ids.push_back(7);
  EXPECT_EQ(run(*engine, request).cached_tokens, 64);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.cached_prompt_tokens, 64);
  EXPECT_EQ(stats.prefill_tokens, 60 + 71 - 64);
  EXPECT_EQ(stats.evicted_tokens, 0);
  EXPECT_EQ(stats.free_blocks, stats.total_blocks) << "cached blocks count as free";
}

// A prompt of exactly 2 blocks keeps its last token to compute, one of 33 does not need to.
TEST(EngineCache, TheLastTokenIsAlwaysComputed) {
  for (const std::int64_t length : {31, 32, 33}) {
    FakeControl control;
    const auto engine = start_fake_engine({}, control);
    const Request request = whole_request(length, 1, 5);
    run(*engine, request);
    EXPECT_EQ(run(*engine, request).cached_tokens, length == 33 ? 32 : 16) << length;
  }
}

TEST(EngineCache, ChangesNoTokenWithFewBlocksAndSmallChunks) {
  std::int64_t preemptions = 0;
  for (const std::int64_t chunk : {1, 15, 16, 17, 64}) {
    for (const std::int64_t num_blocks : {9, 200}) {
      for (const bool keeps_prefixes : {true, false}) {
        const auto policy = chunk % 2 == 0 ? SchedulePolicy::kFcfs : SchedulePolicy::kLpm;
        FakeControl control;
        const auto engine = start_fake_engine({.num_blocks = num_blocks,
                                               .max_prefill_tokens = chunk,
                                               .max_running_requests = 8,
                                               .keeps_prefixes = keeps_prefixes,
                                               .schedule_policy = policy},
                                              control);
        const std::vector<Request> requests = related_requests(24);
        const std::vector<RequestId> ids = submit_together(*engine, control, requests);
        const auto answers = collect(*engine, ids);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256)) << i;
        }
        const EngineStats stats = engine->stats();
        EXPECT_EQ(stats.free_blocks, num_blocks);
        EXPECT_EQ(stats.cached_prompt_tokens > 0, keeps_prefixes);
        EXPECT_EQ(stats.evicted_tokens > 0, keeps_prefixes && num_blocks == 9);
        preemptions += stats.preemptions;
      }
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST(EngineCache, SaltsShareNothing) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = whole_request(40, 1, 5);
  run(*engine, request);
  request.cache_salt = "a";
  EXPECT_EQ(run(*engine, request).cached_tokens, 0);
  EXPECT_EQ(run(*engine, request).cached_tokens, 32);
  request.cache_salt = "b";
  EXPECT_EQ(run(*engine, request).cached_tokens, 0);
  request.cache_salt = "";
  EXPECT_EQ(run(*engine, request).cached_tokens, 32);
}

// Four blocks: the second prompt needs all of them.
TEST(EngineCache, OldPrefixesGiveWayToNewRequests) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_blocks = 4}, control);
  const Request first = whole_request(40, 1, 5);
  run(*engine, first);
  run(*engine, whole_request(60, 2, 5));
  EXPECT_EQ(engine->stats().evicted_tokens, 32);
  EXPECT_EQ(run(*engine, first).cached_tokens, 0);
  EXPECT_EQ(engine->stats().free_blocks, 4);
}

TEST(EngineCache, FlushForgetsWhatNobodyUses) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  const Request request = whole_request(40, 1, 5);
  run(*engine, request);
  engine->flush_cache();
  EXPECT_EQ(run(*engine, request).cached_tokens, 0);
  EXPECT_EQ(engine->stats().evicted_tokens, 0) << "nobody wanted the blocks";
  const RequestId running = engine->submit(whole_request(20, 9, 100)).value();
  engine->flush_cache();
  collect(*engine, {running});
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(EngineCache, ACancelledRequestLeavesWhatItHasComputed) {
  FakeControl control;
  std::promise<void> cancelled;
  control.before_forward = [done = cancelled.get_future().share()](int, const Batch& batch) {
    if (batch.token_ids.size() == 1) done.wait();  // it decodes
    return Status();
  };
  const auto engine = start_fake_engine({}, control);
  const RequestId id = engine->submit(whole_request(40, 1, 200)).value();
  while (engine->poll(1000).empty()) {
  }
  engine->cancel(id);
  cancelled.set_value();
  EXPECT_EQ(collect(*engine, {id}).at(id).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(run(*engine, whole_request(40, 1, 5)).cached_tokens, 32);
}

TEST(EngineCache, ScoreNeitherReadsNorFillsIt) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  const std::vector<std::int32_t> ids = fake_prompt(40, 1);
  EXPECT_TRUE(engine->score(ids).ok());
  const Request request = whole_request(40, 1, 5);
  EXPECT_EQ(run(*engine, request).cached_tokens, 0);
  auto scores = engine->score(ids);
  ASSERT_TRUE(scores.ok());
  const std::vector<float> first = fake_logits(std::span(ids).first(1));
  EXPECT_TRUE(std::ranges::equal(first, std::span(*scores).first(kFakeVocab)));
  EXPECT_EQ(run(*engine, request).cached_tokens, 32);
}

// 129 tokens each, 27 blocks in all; the three have the same tokens, one step apart.
TEST(EngineCache, RunningRequestsShareBlocks) {
  FakeControl control;
  const auto engine = start_fake_engine(
      {.num_blocks = 12, .max_step_tokens = 100, .max_prefill_tokens = 100}, control);
  const Request request = whole_request(90, 4, 40);
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(engine->submit(copy_of(request)).value());
  }
  for (const auto& [id, answer] : collect(*engine, ids)) {
    EXPECT_EQ(answer.tokens, expected_tokens(request, 256));
  }
  EXPECT_EQ(engine->stats().preemptions, 0);
  EXPECT_EQ(engine->stats().free_blocks, 12);
}

// Each rank has a cache of its own. A conversation comes back to the rank that has its beginning,
// also when that is not the first one.
TEST(EngineCache, ADataParallelRankGetsTheRequestsWhosePrefixItHas) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_ranks = 3, .dp_size = 3}, control);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i)
    requests.push_back(whole_request(50, i, 10));
  collect(*engine, submit_together(*engine, control, requests));
  EXPECT_EQ(control.ranks_with_tokens.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(run(*engine, whole_request(50, i, 10)).cached_tokens, 48) << i;
  }
}

TEST(EngineCache, StatsTellThatTheEngineHasFailed) {
  FakeControl control;
  control.before_forward = [](int, const Batch&) {
    return Status(StatusCode::kDeviceError, "the device fell off");
  };
  const auto engine = start_fake_engine({}, control);
  EXPECT_FALSE(engine->stats().failed);
  const RequestId id = engine->submit(whole_request(4, 1, 5)).value();
  EXPECT_EQ(collect(*engine, {id}).at(id).finish_reason, FinishReason::kError);
  EXPECT_TRUE(engine->stats().failed);
}

}  // namespace
}  // namespace halfbyte::test
