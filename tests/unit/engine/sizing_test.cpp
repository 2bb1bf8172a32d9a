// SPDX-License-Identifier: Apache-2.0
#include "engine/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory.h"
#include "support/safetensors_writer.h"

namespace halfbyte {
namespace {

TEST(DecideContext, IsTheModelsOrShorter) {
  EXPECT_EQ(decide_context(0, 4096).value(), 4096);
  EXPECT_EQ(decide_context(100, 4096).value(), 100);
  EXPECT_EQ(decide_context(4097, 4096).status().message(),
            "the context asked for is 4097 tokens, want 1 to 4096: what the model was made for");
  EXPECT_FALSE(decide_context(-1, 4096).ok());
}

TokenBudget budget_of(std::int64_t max_forward_tokens) {
  TokenBudget budget;
  budget.max_forward_tokens = max_forward_tokens;
  return budget;
}

TEST(DecideLimits, AStepHoldsTheTokenBudget) {
  EngineOptions options;
  const SchedulerLimits limits = decide_limits(options, budget_of(16384), 1);
  EXPECT_EQ(limits.max_step_tokens, 16384);
  EXPECT_EQ(limits.max_prefill_tokens, 2048);
  EXPECT_EQ(limits.max_running_requests, 64);
}

// nvfp4-moe 11.2: the chunk size is divided by dp under data-parallel attention; 10.1: a decode
// batch holds at most bound / spec requests.
TEST(DecideLimits, AreThoseOfOneDataParallelRank) {
  EngineOptions options;
  options.chunked_prefill_size = 100;
  options.max_running_requests = 30;
  EXPECT_EQ(decide_limits(options, budget_of(512), 4).max_prefill_tokens, 25);
  EXPECT_EQ(decide_limits(options, budget_of(512), 4).max_running_requests, 8);
  EXPECT_EQ(decide_limits(options, budget_of(16), 1).max_prefill_tokens, 16);
  EXPECT_EQ(decide_limits(options, budget_of(16), 1).max_running_requests, 16);
  TokenBudget speculative = budget_of(16);
  speculative.tokens_per_decode_request = 4;
  EXPECT_EQ(decide_limits(options, speculative, 1).max_running_requests, 4);
}

// 2^27 bytes over 4 times the vocabulary.
TEST(DecidePromptLogitRows, AreWhat128MebibytesHold) {
  EXPECT_EQ(decide_prompt_logit_rows(2048), 16384);
  EXPECT_EQ(decide_prompt_logit_rows(151936), 220);
  EXPECT_EQ(decide_prompt_logit_rows(std::int64_t{1} << 40), 1);
}

TEST(DecideKvBlocks, TakesWhatWasAskedFor) {
  EXPECT_EQ(decide_kv_blocks({.wanted_tokens = 33}).value(), 3);
  EXPECT_FALSE(decide_kv_blocks({.wanted_tokens = -1}).ok());
}

// 64 requests of 4096 tokens are 16384 blocks; one context of 2^20 tokens is 65536.
TEST(DecideKvBlocks, IsEnoughForEveryRunningRequest) {
  KvCacheSizing sizing = {
      .max_context_tokens = 8192, .max_running_requests = 64, .bytes_per_block = 1};
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 16384);
  sizing.max_context_tokens = 256;
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 1024);
  sizing.max_context_tokens = 1 << 20;
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 65536);
}

// Two ranks share half of 4 MiB: 1 MiB each, 1024 blocks of 1 KiB.
TEST(DecideKvBlocks, StaysWithinHalfOfTheAvailableMemory) {
  KvCacheSizing sizing = {.max_context_tokens = 8192,
                          .max_running_requests = 64,
                          .bytes_per_block = 1024,
                          .available_bytes = 4 << 20,
                          .num_ranks = 2};
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 1024);
  sizing.available_bytes = 1024;
  EXPECT_EQ(decide_kv_blocks(sizing).status().code(), StatusCode::kOutOfMemory);
}

// 3 of 4 MiB less 1 MiB of weights leave 1 MiB to each of two ranks.
TEST(DecideKvBlocks, FillsTheFractionThatTheWeightsLeave) {
  KvCacheSizing sizing = {.max_context_tokens = 16,
                          .max_running_requests = 1,
                          .bytes_per_block = 1024,
                          .available_bytes = 4 << 20,
                          .num_ranks = 2,
                          .static_fraction = 0.75,
                          .weight_bytes = 1 << 20};
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 1024);
  sizing.wanted_tokens = 100;
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 7) << "no more than was asked for";
  sizing.wanted_tokens = 1 << 20;
  EXPECT_EQ(decide_kv_blocks(sizing).value(), 1024) << "nor than there is room for";
}

TEST(DecideKvBlocks, SaysWhyAFractionCannotBe) {
  KvCacheSizing sizing = {
      .bytes_per_block = 64, .available_bytes = 1000, .static_fraction = 0.5, .weight_bytes = 500};
  const auto refusal = [&sizing] {
    return std::string(decide_kv_blocks(sizing).status().message());
  };
  EXPECT_EQ(refusal(),
            "--mem-fraction-static 0.5 of the 1000 bytes that are available, less 500 bytes of "
            "weights, is less than one block of 64 bytes in each KV cache of 1 ranks: raise it, or "
            "leave it out");
  sizing.available_bytes = 0;
  EXPECT_THAT(refusal(), testing::HasSubstr("does not say how much memory is available"));
  sizing.static_fraction = 1.5;
  EXPECT_EQ(refusal(), "--mem-fraction-static is 1.5, want more than 0 and at most 1");
}

TEST(WeightFileBytes, AreThoseOfSafetensorsFiles) {
  const test::TempDirectory directory;
  EXPECT_EQ(weight_file_bytes(directory.string()), 0);
  for (const char* name : {"a.safetensors", "b.safetensors", "config.json"})
    test::write_text(directory / name, "12345");
  EXPECT_EQ(weight_file_bytes(directory.string()), 10);
  EXPECT_EQ(weight_file_bytes((directory / "nothing").string()), 0);
}

TEST(AvailableMemory, ReadsTheSystemsFigure) {
  EXPECT_EQ(parse_mem_available("MemTotal:  100 kB\nMemAvailable:    24 kB\nBuffers: 3 kB\n"),
            24 * 1024);
  EXPECT_EQ(parse_mem_available("MemTotal:  100 kB\n"), 0);
  EXPECT_EQ(parse_mem_available("MemAvailable: none"), 0);
  EXPECT_GT(available_memory_bytes(), 0);
}

}  // namespace
}  // namespace halfbyte
