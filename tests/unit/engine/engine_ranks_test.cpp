// SPDX-License-Identifier: Apache-2.0
//
// Several in-process ranks. The fake model checks on every rank and step that the list of T_r is
// what the ranks really hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "fake_model.h"

namespace halfbyte::test {
namespace {

using ::testing::HasSubstr;

struct Ranks {
  int num_ranks;
  int dp_size;
};

class EngineRanks : public ::testing::TestWithParam<Ranks> {};

std::vector<Request> requests_of(std::uint32_t count) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    Request request;
    request.prompt_ids = fake_prompt(1 + (i * 19) % 50, i);
    request.sampling.max_new_tokens = 10 + i % 13;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = i;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(EngineRanks, EveryRequestGetsTheTokensOfOneRank) {
  FakeControl control;
  const auto engine = start_fake_engine({.num_ranks = GetParam().num_ranks,
                                         .dp_size = GetParam().dp_size,
                                         .num_blocks = 12,
                                         .max_step_tokens = 24,
                                         .max_prefill_tokens = 9,
                                         .max_running_requests = 6},
                                        control);
  const std::vector<Request> requests = requests_of(16);
  const std::vector<RequestId> ids = submit_together(*engine, control, requests);
  const auto answers = collect(*engine, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(answers.at(ids[i]).tokens, expected_tokens(requests[i], 256)) << i;
  }
  EXPECT_EQ(engine->stats().total_blocks, 12 * GetParam().dp_size);
  EXPECT_EQ(engine->stats().free_blocks, 12 * GetParam().dp_size);
  EXPECT_EQ(control.ranks_with_tokens.size(), static_cast<std::size_t>(GetParam().num_ranks));
  EXPECT_LE(control.largest_batch, 24);
}

// One request: every other data-parallel rank joins each step with no tokens.
TEST_P(EngineRanks, ASingleRequestAndAScoreRunBesideIdleRanks) {
  FakeControl control;
  const auto engine = start_fake_engine(
      {.num_ranks = GetParam().num_ranks, .dp_size = GetParam().dp_size}, control);
  const std::vector<Request> requests = requests_of(1);
  const Request& request = requests.front();
  const RequestId id = engine->submit(copy_of(request)).value();
  EXPECT_EQ(collect(*engine, {id}).at(id).tokens, expected_tokens(request, 256));
  const std::vector<std::int32_t> ids = fake_prompt(20, 1);
  auto scores = engine->score(ids);
  ASSERT_TRUE(scores.ok()) << scores.status().to_string();
  const auto last = fake_logits(ids);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), scores->end() - kFakeVocab));
}

TEST_P(EngineRanks, AFailureOfAnyRankEndsEverythingWithItsCause) {
  for (int failing = 0; failing < GetParam().num_ranks; ++failing) {
    FakeControl control;
    std::atomic<int> calls{0};
    std::promise<void> submitted;
    const std::shared_future<void> all = submitted.get_future().share();
    control.before_forward = [&calls, failing, all](int rank, const Batch&) {
      all.wait();
      if (rank != failing || ++calls < 4) return Status();
      return Status(StatusCode::kDeviceError, "out of order");
    };
    const auto engine = start_fake_engine(
        {.num_ranks = GetParam().num_ranks, .dp_size = GetParam().dp_size}, control);
    std::vector<RequestId> ids;
    for (const Request& request : requests_of(8)) {
      ids.push_back(engine->submit(copy_of(request)).value());
    }
    submitted.set_value();
    for (const auto& [id, answer] : collect(*engine, ids)) {
      EXPECT_EQ(answer.finish_reason, FinishReason::kError);
      EXPECT_THAT(answer.error, HasSubstr("out of order"));
      EXPECT_THAT(answer.error, HasSubstr("rank " + std::to_string(failing)));
    }
    EXPECT_EQ(engine->submit(copy_of(requests_of(1).front())).status().code(),
              StatusCode::kDeviceError);
  }
}

TEST_P(EngineRanks, MayBeDestroyedWhileRequestsRun) {
  FakeControl control;
  auto engine = start_fake_engine(
      {.num_ranks = GetParam().num_ranks, .dp_size = GetParam().dp_size}, control);
  for (const Request& request : requests_of(8)) {
    ASSERT_TRUE(engine->submit(copy_of(request)).ok());
  }
  engine->poll(50);
  engine.reset();
}

INSTANTIATE_TEST_SUITE_P(InProcess,
                         EngineRanks,
                         ::testing::Values(Ranks{2, 1}, Ranks{2, 2}, Ranks{4, 2}, Ranks{3, 3}),
                         [](const auto& test) {
                           return std::to_string(test.param.num_ranks) + "RanksDp" +
                                  std::to_string(test.param.dp_size);
                         });

}  // namespace
}  // namespace halfbyte::test
