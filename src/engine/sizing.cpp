// SPDX-License-Identifier: Apache-2.0
#include "engine/sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/checked.h"
#include "base/memory.h"
#include "engine/block_manager.h"
#include "model/model.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kDefaultChunkTokens = 2048;
constexpr std::int64_t kDefaultTokensPerRequest = 4096;
constexpr std::int64_t kPromptLogitBytes = std::int64_t{128} << 20;

Status check_sizing(const KvCacheSizing& sizing) {
  if (sizing.wanted_tokens < 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--max-total-tokens is {}, want at least 1, or 0 to let the engine decide",
                        sizing.wanted_tokens)};
  }
  // NaN is in no range.
  if (!(sizing.static_fraction >= 0.0 && sizing.static_fraction <= 1.0)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--mem-fraction-static is {}, want more than 0 and at most 1",
                        sizing.static_fraction)};
  }
  if (sizing.static_fraction == 0.0 || sizing.available_bytes > 0) return {};
  return {StatusCode::kUnsupported,
          "--mem-fraction-static: this system does not say how much memory is available; give "
          "--max-total-tokens instead"};
}

// What the KV caches of all ranks may take.
std::int64_t cache_bytes(const KvCacheSizing& sizing) {
  if (sizing.static_fraction == 0.0) return sizing.available_bytes / 2;
  const double share = sizing.static_fraction * static_cast<double>(sizing.available_bytes);
  return static_cast<std::int64_t>(share) - sizing.weight_bytes;
}

Status too_little_memory(const KvCacheSizing& sizing) {
  if (sizing.static_fraction == 0.0) {
    return {StatusCode::kOutOfMemory,
            fmt::format("host memory: {} bytes are available, half of them for the KV caches of "
                        "{} ranks is less than one block of {} bytes",
                        sizing.available_bytes, sizing.num_ranks, sizing.bytes_per_block)};
  }
  return {
      StatusCode::kInvalidArgument,
      fmt::format("--mem-fraction-static {} of the {} bytes that are available, less {} bytes "
                  "of weights, is less than one block of {} bytes in each KV cache of {} ranks: "
                  "raise it, or leave it out",
                  sizing.static_fraction, sizing.available_bytes, sizing.weight_bytes,
                  sizing.bytes_per_block, sizing.num_ranks)};
}

// What there shall be where memory sets no bound.
std::int64_t wanted_blocks(const KvCacheSizing& sizing) {
  if (sizing.wanted_tokens > 0) return blocks_for(sizing.wanted_tokens);
  if (sizing.static_fraction > 0.0) return std::numeric_limits<std::int32_t>::max();
  const std::int64_t usual = std::min(sizing.max_context_tokens, kDefaultTokensPerRequest);
  return std::max(blocks_for(usual) * sizing.max_running_requests,
                  blocks_for(sizing.max_context_tokens));
}

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
  HALFBYTE_RETURN_IF_ERROR(check_sizing(sizing));
  const std::int64_t wanted = wanted_blocks(sizing);
  const bool is_stated = sizing.wanted_tokens > 0 && sizing.static_fraction == 0.0;
  if (is_stated || sizing.available_bytes == 0) return wanted;
  const std::int64_t affordable =
      cache_bytes(sizing) / sizing.num_ranks / std::max<std::int64_t>(sizing.bytes_per_block, 1);
  if (affordable < 1) return too_little_memory(sizing);
  return std::min(wanted, affordable);
}

KvCacheSizing kv_cache_sizing(const EngineOptions& options,
                              const ModelConfig& config,
                              const SchedulerLimits& limits,
                              int num_ranks) {
  KvCacheSizing sizing;
  sizing.wanted_tokens = options.kv_cache_tokens;
  sizing.max_context_tokens =
      options.max_context_tokens > 0 ? options.max_context_tokens : config.max_position_embeddings;
  sizing.max_running_requests = limits.max_running_requests;
  sizing.bytes_per_block = kv_bytes_per_block(config, options.kv_cache_dtype);
  sizing.available_bytes = available_memory_bytes();
  sizing.num_ranks = num_ranks;
  sizing.static_fraction = options.static_memory_fraction;
  sizing.weight_bytes = weight_file_bytes(options.model_path);
  return sizing;
}

std::int64_t weight_file_bytes(const std::string& directory) {
  std::int64_t total = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto size = entry.file_size(error);
    if (!error) total += static_cast<std::int64_t>(size);
  }
  return total;
}

}  // namespace halfbyte
