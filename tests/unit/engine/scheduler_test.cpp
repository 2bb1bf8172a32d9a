// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>

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
                      64);
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
                      64);
  scheduler.add(make_sequence(1, 3, 9));
  scheduler.add(make_sequence(2, 12, 9));
  scheduler.add(make_sequence(3, 4, 9));
  EXPECT_EQ(step(scheduler), (Step{{1, 3, true}, {2, 5, false}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 7, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}, {3, 4, true}}));
}

TEST(Scheduler, TheChunkBoundsPrefillOnly) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 2, .max_running_requests = 8},
                      64);
  for (RequestId id = 1; id <= 5; ++id) {
    scheduler.add(make_sequence(id, 1, 9));
  }
  EXPECT_EQ(step(scheduler).size(), 2U);
  EXPECT_EQ(step(scheduler).size(), 4U);
  EXPECT_EQ(step(scheduler).size(), 5U);
}

TEST(Scheduler, HoldsTheLimitOfRunningRequests) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 2},
                      64);
  for (RequestId id = 1; id <= 3; ++id) {
    scheduler.add(make_sequence(id, 1, 2));
  }
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(step(scheduler), (Step{{3, 1, true}}));
}

// Two blocks of 16: both requests outgrow their first one, and 2 has to give its own up.
TEST(Scheduler, SendsTheYoungestBackWhenBlocksRunOut) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      3);
  scheduler.add(make_sequence(1, 15, 10));
  scheduler.add(make_sequence(2, 15, 10));
  EXPECT_EQ(step(scheduler), (Step{{1, 15, true}, {2, 15, true}}));
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}, {2, 1, true}}));
  EXPECT_EQ(scheduler.blocks().num_free(), 1);
  // Position 16 of request 1 takes the last block, request 2 finds none and is itself the youngest.
  EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 1);
  while (scheduler.num_running() == 1) {
    EXPECT_EQ(step(scheduler), (Step{{1, 1, true}}));
  }
  // What it had generated is computed again as a prompt: 15 tokens and the 2 it had.
  EXPECT_EQ(step(scheduler), (Step{{2, 17, true}}));
}

// Four blocks: 2 takes the last one for its 17th token, 1 needs one more for its 33rd.
TEST(Scheduler, AnOlderRequestTakesTheBlocksOfAYoungerOne) {
  Scheduler scheduler({.max_step_tokens = 64, .max_prefill_tokens = 64, .max_running_requests = 4},
                      4);
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
                      3);
  scheduler.add(make_sequence(1, 20, 5));
  scheduler.add(make_sequence(2, 30, 5));  // two blocks: not now
  scheduler.add(make_sequence(3, 1, 5));   // would fit
  EXPECT_EQ(step(scheduler), (Step{{1, 20, true}}));
  EXPECT_EQ(scheduler.num_waiting(), 2);
}

TEST(Scheduler, RemovesFromTheQueueAndFromTheRunningAndFreesBlocks) {
  Scheduler scheduler({.max_step_tokens = 8, .max_prefill_tokens = 8, .max_running_requests = 1},
                      8);
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
TEST(Scheduler, ConservesBlocksOverTenThousandArrivalsAndAborts) {
  const SchedulerLimits limits = {
      .max_step_tokens = 40, .max_prefill_tokens = 24, .max_running_requests = 9};
  constexpr std::int64_t kBlocks = 12;
  Scheduler scheduler(limits, kBlocks);
  std::mt19937 rng(3);
  const auto below = [&rng](std::int64_t end) {
    return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(end));
  };
  RequestId next_id = 1;
  while (next_id <= 10000 || scheduler.has_work()) {
    for (std::int64_t i = below(3); i > 0 && next_id <= 10000; --i, ++next_id) {
      scheduler.add(make_sequence(next_id, 1 + below(90), 1 + below(90)));
    }
    if (below(3) == 0) scheduler.remove(next_id - static_cast<RequestId>(below(40)));
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

}  // namespace
}  // namespace halfbyte
