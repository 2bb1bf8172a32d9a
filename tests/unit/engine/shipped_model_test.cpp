// SPDX-License-Identifier: Apache-2.0
//
// A real model through the whole engine: neither the prefix cache nor a pause changes a token, and
// a prompt's logprobs are those of its logits.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/logprobs.h"

namespace halfbyte {
namespace {

constexpr std::int32_t kVocab = 2048;

struct Ranks {
  int tp_size;
  int ep_size;
  int dp_size;
};

EngineOptions options_of(const Ranks& ranks, bool disable_radix_cache) {
  EngineOptions options;
  options.model_path = std::string(HALFBYTE_SOURCE_DIR) + "/models/gsm-mini-qwen3moe-nvfp4";
  options.moe.tp_size = ranks.tp_size;
  options.moe.ep_size = ranks.ep_size;
  options.moe.dp_size = ranks.dp_size;
  options.moe.enable_dp_attention = ranks.dp_size > 1;
  options.moe.num_threads = 1;
  options.max_prefill_tokens = 64;
  options.chunked_prefill_size = 40 * ranks.dp_size;  // no multiple of a block
  options.max_running_requests = 4;
  options.kv_cache_tokens = 12 * 16;  // few, so that requests are sent back and prefixes evicted
  options.disable_radix_cache = disable_radix_cache;
  return options;
}

// Six requests; each continues one of two long beginnings.
std::vector<Request> requests() {
  std::vector<Request> result;
  for (std::uint32_t i = 0; i < 6; ++i) {
    std::mt19937 shared(i % 2), own(i + 10);
    Request& request = result.emplace_back();
    for (int k = 0; k < 50; ++k) {
      request.prompt_ids.push_back(static_cast<std::int32_t>((k < 40 ? shared() : own()) % kVocab));
    }
    request.sampling.max_new_tokens = 24;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = i;
    request.sampling.num_logprobs = 0;
  }
  return result;
}

struct Outcome {
  std::map<RequestId, std::vector<std::int32_t>> tokens;
  std::map<RequestId, std::vector<float>> logprobs;
  EngineStats stats;
};

// `pauses`: about every sixth token sets its request aside until the next events.
Outcome run(const EngineOptions& options, bool pauses = false) {
  Outcome outcome;
  std::vector<RequestId> paused;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return outcome;
  std::size_t num_running = 0;
  for (Request& request : requests()) {
    num_running += (*engine)->submit(std::move(request)).ok() ? 1U : 0U;
  }
  while (num_running > 0) {
    const std::vector<TokenEvent> events = (*engine)->poll(pauses ? 1 : 1000);
    for (const RequestId id : std::exchange(paused, {}))
      (*engine)->set_paused(id, false);
    for (const TokenEvent& event : events) {
      EXPECT_NE(event.finish_reason, FinishReason::kError) << event.error;
      if (pauses && event.token_id % 6 == 0) {
        paused.push_back(event.request_id);
        (*engine)->set_paused(event.request_id, true);
      }
      if (event.finish_reason != FinishReason::kNone) --num_running;
      if (event.token_id < 0) continue;
      outcome.tokens[event.request_id].push_back(event.token_id);
      outcome.logprobs[event.request_id].push_back(event.logprobs.front().logprob);
    }
  }
  outcome.stats = (*engine)->stats();
  return outcome;
}

class ShippedModelEngine : public testing::TestWithParam<Ranks> {};

TEST_P(ShippedModelEngine, GivesTheSameBitsWithoutThePrefixCacheAndWithItAndPaused) {
  const Outcome plain = run(options_of(GetParam(), true));
  const Outcome cached = run(options_of(GetParam(), false));
  EXPECT_EQ(plain.tokens.size(), 6U);
  EXPECT_EQ(plain.tokens, cached.tokens);
  EXPECT_EQ(plain.logprobs, cached.logprobs);
  EXPECT_EQ(plain.stats.cached_prompt_tokens, 0);
  EXPECT_GT(cached.stats.cached_prompt_tokens, 0);
  EXPECT_EQ(cached.stats.free_blocks, cached.stats.total_blocks);
  const Outcome paused = run(options_of(GetParam(), false), true);
  EXPECT_EQ(plain.tokens, paused.tokens);
  EXPECT_EQ(plain.logprobs, paused.logprobs);
  EXPECT_EQ(paused.stats.free_blocks, paused.stats.total_blocks);
}

// The events of one request.
std::vector<TokenEvent> run_one(Engine& engine, Request request) {
  std::vector<TokenEvent> events;
  EXPECT_TRUE(engine.submit(std::move(request)).ok());
  while (events.empty() || events.back().finish_reason == FinishReason::kNone) {
    for (TokenEvent& event : engine.poll(1000))
      events.push_back(std::move(event));
  }
  EXPECT_EQ(events.back().error, "");
  return events;
}

// What each token was drawn with is what a prompt of prompt and answer says of it: one is computed
// alone behind the cache, the other among the tokens of a chunk.
TEST_P(ShippedModelEngine, ScoresAnAnswerAsItWasDrawnBitForBit) {
  auto engine = Engine::create(options_of(GetParam(), false));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  std::vector<Request> all = requests();
  Request request = std::move(all.back());
  Request scored;
  scored.prompt_ids = request.prompt_ids;
  scored.sampling.max_new_tokens = 0;
  scored.sampling.num_prompt_logprobs = 0;
  scored.sampling.prompt_logprob_start = std::ssize(request.prompt_ids);
  std::vector<float> drawn_with;
  for (const TokenEvent& event : run_one(**engine, std::move(request))) {
    scored.prompt_ids.push_back(event.token_id);
    drawn_with.push_back(event.logprobs.front().logprob);
  }
  std::vector<float> scores;
  const std::vector<TokenEvent> events = run_one(**engine, std::move(scored));
  ASSERT_EQ(events.size(), 1U);
  for (const std::vector<TokenLogprob>& token : events.front().prompt_logprobs)
    scores.push_back(token.front().logprob);
  EXPECT_EQ(scores.size(), 24U);
  EXPECT_EQ(scores, drawn_with);
}

// 50 tokens, prefilled in pieces of 40.
TEST_P(ShippedModelEngine, GivesAPromptTheLogprobsOfItsScoreBitForBit) {
  auto engine = Engine::create(options_of(GetParam(), false));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  Request request;
  request.prompt_ids = requests().front().prompt_ids;
  const std::vector<std::int32_t> prompt = request.prompt_ids;
  request.sampling.max_new_tokens = 0;
  request.sampling.num_prompt_logprobs = 2;
  const std::vector<TokenEvent> events = run_one(**engine, std::move(request));
  ASSERT_EQ(events.front().prompt_logprobs.size(), prompt.size()) << events.front().error;
  auto scores = (*engine)->score(prompt);
  ASSERT_TRUE(scores.ok()) << scores.status().to_string();
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const auto row = std::span<const float>(*scores).subspan((i - 1) * kVocab, kVocab);
    const std::vector<TokenLogprob> want = logprobs_of(row, prompt[i], 2);
    const std::vector<TokenLogprob>& got = events.front().prompt_logprobs[i];
    ASSERT_EQ(got.size(), 3U) << i;
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(got[k].token_id, want[k].token_id) << i << ", " << k;
      EXPECT_EQ(got[k].logprob, want[k].logprob) << i << ", " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         ShippedModelEngine,
                         testing::Values(Ranks{1, 1, 1}, Ranks{4, 4, 1}, Ranks{2, 2, 2}),
                         [](const auto& test) {
                           return "Ep" + std::to_string(test.param.ep_size) + "Dp" +
                                  std::to_string(test.param.dp_size);
                         });

}  // namespace
}  // namespace halfbyte
