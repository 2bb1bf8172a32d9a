// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

namespace halfbyte {
namespace {

std::unique_ptr<Sequence> make_sequence(RequestId id, std::int64_t prompt, std::int64_t answer) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request_id = id;
  sequence->tokens.assign(static_cast<std::size_t>(prompt), 1);
  sequence->num_prompt_tokens = prompt;
  sequence->max_total_tokens = prompt + answer;
  return sequence;
}

struct Chosen {
  RequestId id;
  std::int64_t num_tokens;
  bool ends;
  bool operator==(const Chosen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Chosen& c) {
  return out << "{" << c.id << ", " << c.num_tokens << ", " << c.ends << "}";
}

// As the engine makes one whose prompt's logprobs are wanted from `start` on, which is at least 1.
std::unique_ptr<Sequence> make_scored(RequestId id, std::int64_t prompt, std::int64_t start) {
  auto sequence = make_sequence(id, prompt, 9);
  sequence->num_unscored_tokens = prompt - start;
  return sequence;
}

// One step as the engine makes it: every sequence whose slice ends it gets a token.
std::vector<Chosen> step(Scheduler& scheduler) {
  scheduler.schedule();
  std::vector<Chosen> chosen;
  std::vector<RequestId> finished;
  for (const ScheduledSlice& slice : scheduler.complete_step()) {
    chosen.push_back({slice.sequence->request_id, slice.num_tokens, slice.ends_sequence});
    if (!slice.ends_sequence) continue;
    slice.sequence->tokens.push_back(1);
    if (slice.sequence->num_tokens() == slice.sequence->max_total_tokens) {
      finished.push_back(slice.sequence->request_id);
    }
  }
  for (const RequestId id : finished) {
    scheduler.remove(id);
  }
  return chosen;
}

using Step = std::vector<Chosen>;

TEST(Scheduler, CutsAPromptIntoChunks) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 10, .max_running_requests = 4},
                      64, false);
  scheduler.add(make_sequence(1, 25, 2));
  EXPECT_EQ(step(scheduler), (Step{{1, 10, false}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 10, false}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 5, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  EXPECT_FALSE(scheduler.has_work());
}

// Decodes first, then the prompt that is under way, then new ones, all within 8 tokens.
TEST(Scheduler, MixesPrefillWithDecodeUnderOneBudget) {
  Scheduler scheduler({.max_step_tokens = 8, .max_prefill_tokens = 8, .max_running_requests = 4},
                      64, false);
  scheduler.add(make_sequence(1, 3, 9));
  scheduler.add(make_sequence(2, 12, 9));
  scheduler.add(make_sequence(3, 4, 9));
  EXPECT_EQ(step(scheduler), (Step{{1, 3, true}, {2, 5, false}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 7, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}, {3, 4, true}}));
}

TEST(Scheduler, TheChunkBoundsPrefillOnly) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 2, .max_running_requests = 8},
                      64, false);
  for (RequestId id = 1; id <= 5; ++id) {
    scheduler.add(make_sequence(id, 1, 9));
  }
  EXPECT_EQ(step(scheduler).size(), 2U);
  EXPECT_EQ(step(scheduler).size(), 4U);
  EXPECT_EQ(step(scheduler).size(), 5U);
}

TEST(Scheduler, HoldsTheLimitOfRunningRequests) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 2},
                      64, false);
  for (RequestId id = 1; id <= 3; ++id) {
    scheduler.add(make_sequence(id, 1, 2));
  }
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(step(scheduler), (Step{{3, 1, true}}));
}

// Two blocks of 16: both requests outgrow their first one, and 2 has to give its own up.
TEST(Scheduler, PreemptsTheLastOneWhenBlocksRunOut) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      3, false);
  scheduler.add(make_sequence(1, 15, 10));
  scheduler.add(make_sequence(2, 15, 10));
  EXPECT_EQ(step(scheduler), (Step{{1, 15, true}, {2, 15, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(scheduler.blocks().num_free(), 1);
  // Position 16 of request 1 takes the last block, request 2 finds none and is itself the youngest.
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(scheduler.num_preempted(), 1);
  while (scheduler.num_running() == 1) {
    EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  }
  EXPECT_EQ(scheduler.num_preempted(), 1);
  // What it had generated is computed again as a prompt: 15 tokens and the 2 it had.
  EXPECT_EQ(step(scheduler), (Step{{2, 17, true}}));
}

// Four blocks: 2 takes the last one for its 17th token, 1 needs one more for its 33rd.
TEST(Scheduler, AnOlderRequestTakesTheBlocksOfAYoungerOne) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      4, false);
  scheduler.add(make_sequence(1, 20, 30));
  scheduler.add(make_sequence(2, 16, 30));
  EXPECT_EQ(step(scheduler), (Step{{1, 20, true}, {2, 16, true}}));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  }
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(scheduler.blocks().num_free(), 1);
}

TEST(Scheduler, AWaitingRequestDoesNotOvertake) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      3, false);
  scheduler.add(make_sequence(1, 20, 5));
  scheduler.add(make_sequence(2, 30, 5));  // two blocks: not now
  scheduler.add(make_sequence(3, 1, 5));   // would fit
  EXPECT_EQ(step(scheduler), (Step{{1, 20, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 2);
}

TEST(Scheduler, RemovesFromTheQueueAndFromTheRunningAndFreesBlocks) {
  Scheduler scheduler({.max_step_tokens = 8, .max_prefill_tokens = 8, .max_running_requests = 1}, 8,
                      false);
  scheduler.add(make_sequence(1, 4, 9));
  scheduler.add(make_sequence(2, 4, 9));
  step(scheduler);
  EXPECT_EQ(scheduler.blocks().num_free(), 7);
  EXPECT_NE(scheduler.remove(2), nullptr);
  EXPECT_NE(scheduler.remove(1), nullptr);
  EXPECT_EQ(scheduler.remove(1), nullptr);
  EXPECT_EQ(scheduler.blocks().num_free(), 8);
  EXPECT_FALSE(scheduler.has_work());
}

// Duties of a scheduler under load: blocks are conserved, a step never exceeds its budget, there is
// always one, and everything ends.
class SchedulerUnderLoad : public testing::TestWithParam<bool> {};

TEST_P(SchedulerUnderLoad, ConservesBlocksOverTenThousandArrivalsAndAborts) {
  const SchedulerLimits limits = {
      .max_step_tokens = 40, .max_prefill_tokens = 24, .max_running_requests = 9};
  constexpr std::int64_t kBlocks = 12;
  Scheduler scheduler(limits, kBlocks, GetParam());
  std::mt19937 rng(3);
  const auto below = [&rng](std::int64_t end) {
    return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(end));
  };
  RequestId next_id = 1;
  RequestId next_resumed = 1;  // at the end all of them, one after the other
  const auto recent = [&] { return next_id - static_cast<RequestId>(below(40)); };
  while (next_id <= 10000 || scheduler.has_work() || scheduler.num_paused() > 0) {
    for (std::int64_t i = below(3); i > 0 && next_id <= 10000; --i, ++next_id) {
      scheduler.add(make_sequence(next_id, 1 + below(90), 1 + below(90)));
    }
    if (below(3) == 0) scheduler.remove(recent());
    if (below(3) == 0 && next_id <= 10000) scheduler.pause(recent());
    scheduler.resume(next_id <= 10000 ? recent() : next_resumed++);
    if (!scheduler.has_work()) continue;
    std::int64_t total = 0;
    const Step chosen = step(scheduler);
    ASSERT_FALSE(chosen.empty());
    for (const Chosen& c : chosen) {
      total += c.num_tokens;
    }
    ASSERT_LE(total, limits.max_step_tokens);
    ASSERT_LE(scheduler.num_running(), limits.max_running_requests);
  }
  EXPECT_EQ(scheduler.blocks().num_free(), kBlocks);
}

INSTANTIATE_TEST_SUITE_P(Prefixes, SchedulerUnderLoad, testing::Bool());

// Three blocks. The first request leaves its two whole ones, 32 of the second one's 40 tokens.
TEST(Scheduler, StartsARequestBehindTheLongestPrefix) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      3, true);
  scheduler.add(make_sequence(1, 40, 1));
  EXPECT_EQ(step(scheduler), (Step{{1, 40, true}}));
  EXPECT_EQ(scheduler.blocks().num_free(), 3);
  scheduler.add(make_sequence(2, 40, 1));
  EXPECT_EQ(step(scheduler), (Step{{2, 8, true}}));
  EXPECT_EQ(scheduler.num_prefix_tokens(), 32);
  EXPECT_EQ(scheduler.blocks().num_free(), 3);
}

// Four blocks: request 2 finds three of its four while request 1 runs, but no fourth.
TEST(Scheduler, ARequestThatIsNotAdmittedHoldsNothing) {
  Scheduler scheduler({.max_step_tokens = 99, .max_prefill_tokens = 99, .max_running_requests = 4},
                      4, true);
  scheduler.add(make_sequence(1, 49, 2));
  EXPECT_EQ(step(scheduler), (Step{{1, 49, true}}));
  scheduler.add(make_sequence(2, 50, 1));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  EXPECT_EQ(step(scheduler), (Step{{2, 2, true}}));
  EXPECT_EQ(scheduler.blocks().num_free(), 4);
}

// What one request of several with the same prompt computes, the others find a step later: 80 of
// its 90 tokens are whole blocks.
TEST(Scheduler, APromptIsComputedOnceForAllThatHaveIt) {
  Scheduler scheduler({.max_step_tokens = 99, .max_prefill_tokens = 99, .max_running_requests = 4},
                      64, true);
  for (RequestId id = 1; id <= 3; ++id) {
    scheduler.add(make_sequence(id, 90, 9));
  }
  EXPECT_EQ(step(scheduler), (Step{{1, 90, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 10, true}, {3, 10, true}}));
}

TEST(Scheduler, ShortPromptsAndOtherSaltsDoNotWaitForEachOther) {
  Scheduler scheduler(
      {.max_step_tokens = 200, .max_prefill_tokens = 200, .max_running_requests = 4}, 64, true);
  scheduler.add(make_sequence(1, 32, 9));  // 16 of these are found: the last token is computed
  scheduler.add(make_sequence(2, 32, 9));
  auto other = make_sequence(3, 90, 9);
  other->cache_salt = "salt";
  scheduler.add(std::move(other));
  EXPECT_EQ(step(scheduler), (Step{{1, 32, true}, {2, 32, true}, {3, 90, true}}));
}

// As PreemptsTheLastOneWhenBlocksRunOut, but 16 of its 17 tokens are still there.
TEST(Scheduler, ASequenceThatWasSentBackFindsItsOwnBlocks) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      3, true);
  const auto add = [&scheduler](RequestId id) {
    auto sequence = make_sequence(id, 15, 10);
    sequence->cache_salt = std::to_string(id);
    scheduler.add(std::move(sequence));
  };
  add(1);
  add(2);
  for (int i = 0; i < 3; ++i)
    step(scheduler);
  EXPECT_EQ(scheduler.num_preemptions(), 1);
  while (scheduler.num_running() == 1) {
    EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  }
  EXPECT_EQ(step(scheduler), (Step{{2, 1, true}}));
  EXPECT_EQ(scheduler.num_prefix_tokens(), 0) << "its own tokens are no prefix of its prompt";
}

// Each step brings small requests, more than there is room for; the large one needs every block.
TEST(Scheduler, ALargeRequestIsNotStarvedBySmallOnes) {
  for (const auto& [keeps_prefixes, policy] :
       {std::pair(false, SchedulePolicy::kFcfs), std::pair(true, SchedulePolicy::kFcfs),
        std::pair(true, SchedulePolicy::kLpm)}) {
    Scheduler scheduler(
        {.max_step_tokens = 64, .max_prefill_tokens = 16, .max_running_requests = 8}, 8,
        keeps_prefixes, policy);
    RequestId next_id = 1;
    const auto add_small = [&] { scheduler.add(make_sequence(next_id++, 10, 20)); };
    for (int i = 0; i < 20; ++i)
      add_small();
    const RequestId large = next_id++;
    scheduler.add(make_sequence(large, 100, 29));
    int steps = 0;
    for (bool done = false; !done; ++steps) {
      add_small();
      add_small();
      ASSERT_LT(steps, 400) << "not done, with " << scheduler.num_waiting() << " waiting";
      for (const Chosen& chosen : step(scheduler))
        done = done || chosen.id > large;
    }
    EXPECT_EQ(scheduler.remove(large), nullptr) << "a later one ran before it had ended";
  }
}

// ---- order of admission

// Each number is a block of 16 tokens; one more token makes the last whole block one to be found.
std::unique_ptr<Sequence> make_of(RequestId id, const std::vector<std::int32_t>& blocks) {
  auto sequence = make_sequence(id, 0, 1);
  for (const std::int32_t block : blocks) {
    sequence->tokens.insert(sequence->tokens.end(), kKvBlockTokens, block);
  }
  sequence->tokens.push_back(99);
  sequence->num_prompt_tokens = sequence->num_tokens();
  sequence->max_total_tokens = sequence->num_tokens() + 1;
  return sequence;
}

std::vector<RequestId> order_of_ends(Scheduler& scheduler) {
  std::vector<RequestId> order;
  while (scheduler.has_work()) {
    for (const Chosen& chosen : step(scheduler)) {
      if (chosen.ends) order.push_back(chosen.id);
    }
  }
  return order;
}

constexpr SchedulerLimits kOneAtATime = {
    .max_step_tokens = 200, .max_prefill_tokens = 200, .max_running_requests = 1};

TEST(Scheduler, LpmAdmitsTheLongestCachedPrefixFirst) {
  for (const auto policy : {SchedulePolicy::kFcfs, SchedulePolicy::kLpm}) {
    Scheduler scheduler(kOneAtATime, 64, true, policy);
    scheduler.add(make_of(1, {1, 2, 3}));
    EXPECT_EQ(order_of_ends(scheduler), (std::vector<RequestId>{1}));
    scheduler.add(make_of(2, {7}));           // finds nothing
    scheduler.add(make_of(3, {1, 7}));        // a block
    scheduler.add(make_of(4, {1, 2, 3, 7}));  // three
    scheduler.add(make_of(5, {1, 7, 8}));     // one, and another when 3 has left it
    scheduler.add(make_of(6, {1, 2, 3, 8}));  // three
    const bool lpm = policy == SchedulePolicy::kLpm;
    EXPECT_EQ(order_of_ends(scheduler), lpm ? (std::vector<RequestId>{4, 6, 3, 5, 2})
                                            : (std::vector<RequestId>{2, 3, 4, 5, 6}));
  }
}

// Every step brings a request that finds more than the first one: it is passed kMaxOvertakes times.
TEST(Scheduler, LpmLetsNobodyBeOvertakenForEver) {
  Scheduler scheduler(kOneAtATime, 64, true);
  scheduler.add(make_of(1, {1, 2, 3}));
  step(scheduler);
  scheduler.add(make_of(2, {7, 8}));
  scheduler.add(make_of(3, {7, 8, 9}));
  RequestId next_id = 4;
  std::vector<RequestId> order;
  while (order.size() < static_cast<std::size_t>(kMaxOvertakes) + 2) {
    scheduler.add(make_of(next_id++, {1, 2, 3}));
    for (const Chosen& chosen : step(scheduler))
      order.push_back(chosen.id);
  }
  EXPECT_EQ(order.front(), 4U);
  EXPECT_EQ(order[static_cast<std::size_t>(kMaxOvertakes)], 2U);
  EXPECT_EQ(order.back(), 3U);
}

// Without the ones that were before it, it is passed no more often.
TEST(Scheduler, ARequestThatLeavesTheQueueDelaysNobody) {
  Scheduler scheduler(kOneAtATime, 64, true);
  scheduler.add(make_of(1, {1, 2, 3}));
  step(scheduler);
  for (RequestId id = 2; id <= 11; ++id)
    scheduler.add(make_of(id, {static_cast<std::int32_t>(id) + 20}));
  for (RequestId id = 2; id <= 10; ++id)
    EXPECT_NE(scheduler.remove(id), nullptr);
  RequestId next_id = 12;
  std::int64_t num_overtakes = 0;
  for (bool done = false; !done; ++num_overtakes) {
    scheduler.add(make_of(next_id++, {1, 2, 3}));
    done = step(scheduler).front().id == 11;
  }
  EXPECT_EQ(num_overtakes - 1, kMaxOvertakes);
}

// Two preempted ones come back in their order, before whatever finds more in the cache.
TEST(Scheduler, WhoWasPreemptedComesBackFirst) {
  Scheduler scheduler({.max_step_tokens = 99, .max_prefill_tokens = 99, .max_running_requests = 3},
                      64, true);
  for (RequestId id = 1; id <= 3; ++id)
    scheduler.add(make_of(id, {static_cast<std::int32_t>(id)}));
  scheduler.schedule();
  scheduler.complete_step();
  EXPECT_TRUE(scheduler.preempt_last());
  EXPECT_TRUE(scheduler.preempt_last());
  EXPECT_EQ(scheduler.num_preempted(), 2);
  scheduler.add(make_of(4, {1, 2}));
  scheduler.remove(1);
  std::vector<RequestId> ids;
  for (const ScheduledSlice& slice : scheduler.schedule())
    ids.push_back(slice.sequence->request_id);
  EXPECT_EQ(ids, (std::vector<RequestId>{2, 3, 4}));
  EXPECT_EQ(scheduler.num_preempted(), 0);
  EXPECT_NE(scheduler.remove_any(), nullptr);
}

// ---- prompts whose logprobs are wanted

// 25 tokens, of which the last 24 are scored by the rows 0 to 23.
TEST(Scheduler, AStepHasNoMorePromptRowsThanItsLimit) {
  Scheduler scheduler({.max_step_tokens = 64,
                       .max_prefill_tokens = 64,
                       .max_running_requests = 4,
                       .max_prompt_logit_rows = 10},
                      64, true);
  scheduler.add(make_scored(1, 25, 1));
  scheduler.add(make_scored(2, 25, 21));
  scheduler.add(make_sequence(3, 5, 9));
  EXPECT_EQ(scheduler.schedule()[0].num_prompt_rows, 10);
  // Nothing of 2 comes before its first row but 20 tokens, and 3 does not wait for it.
  EXPECT_EQ(step(scheduler), (Step{{1, 10, false}, {2, 20, false}, {3, 5, true}}));
  EXPECT_EQ(step(scheduler), (Step{{3, 1, true}, {1, 10, false}}));
  EXPECT_EQ(step(scheduler), (Step{{3, 1, true}, {1, 5, true}, {2, 5, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}, {3, 1, true}}));
}

// Rows that are done are not wanted again: with them it may start in the cache.
TEST(Scheduler, APreemptedPromptIsScoredFromWhereItWas) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 20, .max_running_requests = 4},
                      64, true);
  scheduler.add(make_scored(1, 50, 1));
  EXPECT_EQ(step(scheduler), (Step{{1, 20, false}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 20, false}}));
  scheduler.preempt_last();
  const std::vector<ScheduledSlice>& slices = scheduler.schedule();
  ASSERT_EQ(slices.size(), 1U);
  EXPECT_EQ(slices[0].sequence->num_cached_tokens, 32);
  EXPECT_EQ(slices[0].num_tokens, 18);
  EXPECT_EQ(slices[0].num_prompt_rows, 9) << "40 to 48: the last one is the answer's";
  EXPECT_EQ(slices[0].num_logit_rows(), 10);
}

// ---- sequences that are set aside

TEST(Scheduler, WhatIsSetAsideHoldsNothingAndComesBackBeforeWhatNeverRan) {
  Scheduler scheduler(kOneAtATime, 8, false);
  scheduler.add(make_sequence(1, 20, 9));
  scheduler.add(make_sequence(2, 5, 2));
  scheduler.add(make_sequence(3, 5, 2));
  EXPECT_EQ(step(scheduler), (Step{{1, 20, true}}));
  scheduler.pause(1);
  EXPECT_EQ(scheduler.num_paused(), 1);
  EXPECT_EQ(scheduler.num_running(), 0);
  EXPECT_EQ(scheduler.blocks().num_free(), 8);
  EXPECT_EQ(step(scheduler), (Step{{2, 5, true}}));
  scheduler.resume(1);
  EXPECT_EQ(scheduler.num_paused(), 0);
  EXPECT_EQ(step(scheduler), (Step{{2, 1, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 21, true}})) << "its prompt, and the token that it had";
  EXPECT_EQ(scheduler.num_preemptions(), 0);
}

TEST(Scheduler, OnlyWhatHasRunIsSetAside) {
  Scheduler scheduler(kOneAtATime, 8, false);
  scheduler.add(make_sequence(1, 4, 9));
  scheduler.add(make_sequence(2, 4, 9));
  scheduler.pause(1);
  scheduler.pause(7);
  scheduler.resume(1);
  EXPECT_EQ(step(scheduler), (Step{{1, 4, true}}));
  EXPECT_TRUE(scheduler.preempt_last());
  scheduler.pause(1);
  EXPECT_EQ(scheduler.num_preempted(), 0);
  EXPECT_EQ(scheduler.num_paused(), 1);
  EXPECT_NE(scheduler.remove(2), nullptr);
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.num_tokens(), 5) << "they count where a rank is chosen: they come back";
  EXPECT_NE(scheduler.remove_any(), nullptr);
  EXPECT_EQ(scheduler.remove(1), nullptr);
}

// Many small ones run when a large one is at work; those that come later do not push it out.
TEST(Scheduler, ARunningPromptAdvancesInEveryStep) {
  Scheduler scheduler({.max_step_tokens = 8, .max_prefill_tokens = 8, .max_running_requests = 8},
                      64, true);
  for (RequestId id = 1; id <= 7; ++id)
    scheduler.add(make_sequence(id, 1, 200));
  step(scheduler);
  scheduler.add(make_sequence(8, 30, 1));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(step(scheduler).back(), (Chosen{8, 1, i == 29})) << i;
  }
}

}  // namespace
}  // namespace halfbyte
