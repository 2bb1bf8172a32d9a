// SPDX-License-Identifier: Apache-2.0
//
// Logprobs of prompts through the whole engine. Expected ones: the log-softmax of the fake model's
// logits after each part of the prompt, computed alone and without a cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/logprobs.h"
#include "fake_model.h"

namespace halfbyte::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Compared bit for bit: ids and floats of each prompt token.
using Plain = std::vector<std::vector<std::pair<std::int32_t, float>>>;

Plain plain(const std::vector<std::vector<TokenLogprob>>& logprobs) {
  Plain result;
  for (const std::vector<TokenLogprob>& token : logprobs) {
    auto& entry = result.emplace_back();
    for (const TokenLogprob& logprob : token)
      entry.emplace_back(logprob.token_id, logprob.logprob);
  }
  return result;
}

Plain expected_logprobs(const Request& request) {
  const std::span<const std::int32_t> prompt = request.prompt_ids;
  std::vector<std::vector<TokenLogprob>> logprobs;
  for (auto i = static_cast<std::size_t>(request.sampling.prompt_logprob_start); i < prompt.size();
       ++i) {
    logprobs.emplace_back();
    if (i == 0) continue;
    logprobs.back() =
        logprobs_of(fake_logits(prompt.first(i)), prompt[i], request.sampling.num_prompt_logprobs);
  }
  return plain(logprobs);
}

Request scored_request(std::int64_t prompt_tokens, std::uint32_t seed, std::int64_t start = 0) {
  Request request = make_request(prompt_tokens, seed, 5);
  request.sampling.num_prompt_logprobs = static_cast<int>(seed % 4);
  request.sampling.prompt_logprob_start = start;
  return request;
}

Answer run(Engine& engine, const Request& request) {
  const RequestId id = engine.submit(copy_of(request)).value();
  Answer answer = collect(engine, {id}).at(id);
  EXPECT_EQ(answer.tokens, expected_tokens(request, 256)) << answer.error;
  return answer;
}

TEST(EnginePromptLogprobs, AreTheLogSoftmaxOfEveryPositionBefore) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  const Request request = scored_request(40, 3);
  const Answer answer = run(*engine, request);
  EXPECT_EQ(plain(answer.prompt_logprobs), expected_logprobs(request));
  ASSERT_EQ(answer.prompt_logprobs.size(), 40U);
  EXPECT_THAT(answer.prompt_logprobs[0], IsEmpty()) << "nothing comes before the first";
  EXPECT_EQ(answer.prompt_logprobs[1].size(), 4U);
  EXPECT_EQ(answer.prompt_logprobs[1][0].token_id, request.prompt_ids[1]);

  auto scores = engine->score(request.prompt_ids);
  ASSERT_TRUE(scores.ok());
  for (std::size_t i = 1; i < 40; ++i) {
    const auto row = std::span<const float>(*scores).subspan((i - 1) * kFakeVocab, kFakeVocab);
    EXPECT_EQ(plain({answer.prompt_logprobs[i]}),
              plain({logprobs_of(row, request.prompt_ids[i], 3)}))
        << i;
  }
}

TEST(EnginePromptLogprobs, ComeOnceAndOnlyWhereTheyAreAskedFor) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  EXPECT_THAT(run(*engine, make_request(20, 1, 5)).prompt_logprobs, IsEmpty());
  const RequestId id = engine->submit(scored_request(20, 1)).value();
  int num_events = 0;
  for (bool done = false; !done;) {
    for (const TokenEvent& event : engine->poll(1000)) {
      EXPECT_EQ(event.request_id, id);
      EXPECT_EQ(event.prompt_logprobs.size(), num_events++ == 0 ? 20U : 0U);
      done = event.finish_reason != FinishReason::kNone;
    }
  }
  EXPECT_THAT(run(*engine, scored_request(1, 1)).prompt_logprobs, testing::SizeIs(1));
  EXPECT_THAT(run(*engine, scored_request(20, 1, 20)).prompt_logprobs, IsEmpty());
  EXPECT_THAT(run(*engine, scored_request(20, 1, 19)).prompt_logprobs, testing::SizeIs(1));
}

// Scored and other requests whose prompts begin alike.
std::vector<Request> related_requests(std::uint32_t count) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    Request request = scored_request(5 + (i * 23) % 60, i % 3);
    request.prompt_ids.back() = static_cast<std::int32_t>(i);
    request.sampling.max_new_tokens = 5 + (i * 7) % 40;
    request.sampling.num_prompt_logprobs = static_cast<int>(i % 4) - 1;
    if (i % 5 == 1) request.sampling.prompt_logprob_start = std::ssize(request.prompt_ids) / 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Few blocks: requests are sent back in the middle of their prompts and behind them.
TEST(EnginePromptLogprobs, DependOnNoChunkNoBatchAndNoPreemption) {
  std::int64_t preemptions = 0;
  for (const std::int64_t chunk : {1, 15, 64}) {
    for (const std::int64_t max_rows : {1, 7, 1000}) {
      FakeControl control;
      const auto engine = start_fake_engine(
          {.num_blocks = 9, .max_prefill_tokens = chunk, .max_prompt_logit_rows = max_rows},
          control);
      const std::vector<Request> requests = related_requests(12);
      const std::vector<RequestId> ids = submit_together(*engine, control, requests);
      const auto answers = collect(*engine, ids);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool is_scored = requests[i].sampling.num_prompt_logprobs >= 0;
        ASSERT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256)) << i;
        ASSERT_EQ(plain(answers.at(ids[i]).prompt_logprobs),
                  is_scored ? expected_logprobs(requests[i]) : Plain())
            << i;
      }
      EXPECT_EQ(engine->stats().free_blocks, 9);
      preemptions += engine->stats().preemptions;
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST(EnginePromptLogprobs, NeedNoMoreLogitsAtOnceThanTheLimit) {
  FakeControl control;
  std::atomic<std::size_t> most_rows = 0;
  control.before_forward = [&most_rows](int, const Batch& batch) {
    most_rows = std::max(most_rows.load(), batch.logit_rows.size());
    return Status();
  };
  const auto engine = start_fake_engine({.max_prompt_logit_rows = 6}, control);
  const Request request = scored_request(50, 2);
  EXPECT_EQ(plain(run(*engine, request).prompt_logprobs), expected_logprobs(request));
  EXPECT_EQ(most_rows, 6U) << "49 rows in steps of 6, then the last one with the answer's first";
}

// 60 tokens leave three whole blocks. From token 40 on, the logits of 39 on are wanted.
TEST(EnginePromptLogprobs, ArePositionsThatTheCacheDoesNotSave) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  run(*engine, make_request(60, 1, 5));
  EXPECT_EQ(run(*engine, scored_request(60, 1)).cached_tokens, 0);
  const Request tail = scored_request(60, 1, 40);
  const Answer answer = run(*engine, tail);
  EXPECT_EQ(answer.cached_tokens, 32);
  EXPECT_EQ(plain(answer.prompt_logprobs), expected_logprobs(tail));
  EXPECT_EQ(run(*engine, make_request(60, 1, 5)).cached_tokens, 48);
}

TEST(EnginePromptLogprobs, MayBeAllThatIsWanted) {
  FakeControl control;
  const auto engine = start_fake_engine({}, control);
  Request request = scored_request(40, 2);
  request.prompt_ids.back() = kFakeEos;  // of the prompt: it stops nothing
  request.sampling.max_new_tokens = 0;
  const Answer answer = run(*engine, request);
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(plain(answer.prompt_logprobs), expected_logprobs(request));
  EXPECT_EQ(engine->stats().decode_tokens, 0);

  request.sampling.num_prompt_logprobs = -1;
  const Answer again = run(*engine, request);
  EXPECT_EQ(again.finish_reason, FinishReason::kLength);
  EXPECT_EQ(again.cached_tokens, 32) << "the first one has left its prompt";
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(EnginePromptLogprobs, LogitsThatAreNoNumbersEndTheirOwnRequestOnly) {
  FakeControl control;
  control.nan_after_token = kFakeEos;  // in no other prompt
  Request poisoned = scored_request(40, 1);
  poisoned.prompt_ids[20] = kFakeEos;
  Request healthy = scored_request(40, 2);
  healthy.sampling.ignore_eos = true;
  healthy.sampling.logit_bias = {{kFakeEos, -100.0F}};
  const auto engine = start_fake_engine({}, control);
  const RequestId bad = engine->submit(copy_of(poisoned)).value();
  const RequestId good = engine->submit(copy_of(healthy)).value();
  const auto answers = collect(*engine, {bad, good});
  EXPECT_EQ(answers.at(bad).finish_reason, FinishReason::kError);
  EXPECT_THAT(answers.at(bad).error, HasSubstr("logit of token 0 is nan"));
  EXPECT_EQ(answers.at(good).tokens, expected_tokens(healthy, 256));
  EXPECT_EQ(plain(answers.at(good).prompt_logprobs), expected_logprobs(healthy));
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().total_blocks);
}

TEST(EnginePromptLogprobs, AreTheSameOnAnyRank) {
  FakeControl control;
  const auto engine = start_fake_engine(
      {.num_ranks = 4, .dp_size = 2, .max_prefill_tokens = 9, .max_prompt_logit_rows = 5}, control);
  const std::vector<Request> requests = related_requests(8);
  const std::vector<RequestId> ids = submit_together(*engine, control, requests);
  const auto answers = collect(*engine, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_scored = requests[i].sampling.num_prompt_logprobs >= 0;
    EXPECT_EQ(plain(answers.at(ids[i]).prompt_logprobs),
              is_scored ? expected_logprobs(requests[i]) : Plain())
        << i;
  }
}

}  // namespace
}  // namespace halfbyte::test
