// SPDX-License-Identifier: Apache-2.0
#include "engine/sizing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "engine/block_manager.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kDefaultChunkTokens = 2048;
constexpr std::int64_t kDefaultTokensPerRequest = 4096;
constexpr std::int64_t kPromptLogitBytes = std::int64_t{128} << 20;

}  // namespace

Result<std::int64_t> decide_context(std::int64_t wanted, std::int64_t of_model) {
  if (wanted >= 0 && wanted <= of_model) return wanted == 0 ? of_model : wanted;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the context asked for is {} tokens, want 1 to {}: what the model was "
                            "made for",
                            wanted, of_model));
}

SchedulerLimits decide_limits(const EngineOptions& options,
                              const TokenBudget& budget,
                              int dp_size) {
  const std::int64_t chunk = options.chunked_prefill_size > 0
                                 ? std::max<std::int64_t>(options.chunked_prefill_size / dp_size, 1)
                                 : kDefaultChunkTokens;
  const std::int64_t max_decodes = budget.max_forward_tokens / budget.tokens_per_decode_request;
  SchedulerLimits limits;
  limits.max_step_tokens = budget.max_forward_tokens;
  limits.max_prefill_tokens = std::min(chunk, budget.max_forward_tokens);
  limits.max_running_requests =
      std::min(ceil_div(options.max_running_requests, dp_size), max_decodes);
  return limits;
}

std::int64_t decide_prompt_logit_rows(std::int64_t vocab_size) {
  const auto bytes_per_row = vocab_size * static_cast<std::int64_t>(sizeof(float));
  return std::max<std::int64_t>(kPromptLogitBytes / bytes_per_row, 1);
}

TokenBudgetOptions budget_options(TokenBudgetOptions given,
                                  const EngineOptions& options,
                                  const MoeOptions& moe) {
  given.max_prefill_tokens = options.max_prefill_tokens;
  given.chunked_prefill_size = options.chunked_prefill_size;
  given.max_running_requests = options.max_running_requests;
  given.max_dispatch_tokens_per_rank = options.max_dispatch_tokens_per_rank;
  given.a2a_backend = moe.a2a_backend;
  given.ep_size = std::max(moe.ep_size, 1);
  given.dp_size = std::max(moe.dp_size, 1);
  return given;
}

Result<std::int64_t> decide_kv_blocks(const KvCacheSizing& sizing) {
  if (sizing.wanted_tokens < 0) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("--max-total-tokens is {}, want at least 1, or 0 to let the engine decide",
                    sizing.wanted_tokens));
  }
  if (sizing.wanted_tokens > 0) return blocks_for(sizing.wanted_tokens);
  const std::int64_t usual = std::min(sizing.max_context_tokens, kDefaultTokensPerRequest);
  const std::int64_t wanted = std::max(blocks_for(usual) * sizing.max_running_requests,
                                       blocks_for(sizing.max_context_tokens));
  if (sizing.available_bytes == 0) return wanted;
  const std::int64_t affordable = sizing.available_bytes / 2 / sizing.num_ranks /
                                  std::max<std::int64_t>(sizing.bytes_per_block, 1);
  if (affordable >= 1) return std::min(wanted, affordable);
  return Status(
      StatusCode::kOutOfMemory,
      fmt::format("host memory: {} bytes are available, half of them for the KV caches of "
                  "{} ranks is less than one block of {} bytes",
                  sizing.available_bytes, sizing.num_ranks, sizing.bytes_per_block));
}

}  // namespace halfbyte
