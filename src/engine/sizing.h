// SPDX-License-Identifier: Apache-2.0
//
// Sizes that the engine decides by itself, so that they can be tested without a model. Pure, but
// for what kv_cache_sizing() asks of the machine.
#ifndef HALFBYTE_ENGINE_SIZING_H_
#define HALFBYTE_ENGINE_SIZING_H_

#include <cstdint>
#include <string>

#include "checkpoint/model_config.h"
#include "engine/scheduler.h"
#include "halfbyte/engine.h"
#include "moe/token_budget.h"

namespace halfbyte {

/// The context in force: the model's, or a shorter one that was asked for. kInvalidArgument when
/// more was asked for.
Result<std::int64_t> decide_context(std::int64_t wanted, std::int64_t of_model);

/// Limits of one data-parallel rank. Prefill is cut at `options.chunked_prefill_size / dp_size`, or
/// at 2048 tokens when it is not given.
SchedulerLimits decide_limits(const EngineOptions& options, const TokenBudget& budget, int dp_size);

/// `given` with everything that the engine's options and the resolved `moe` say: prefill, requests,
/// dispatch tokens, ranks. `given` keeps what only sizes graphs and drafts.
TokenBudgetOptions budget_options(TokenBudgetOptions given,
                                  const EngineOptions& options,
                                  const MoeOptions& moe);

/// SchedulerLimits::max_prompt_logit_rows: what 128 MiB hold of rows of fp32 logits, at least 1.
std::int64_t decide_prompt_logit_rows(std::int64_t vocab_size);

struct KvCacheSizing {
  std::int64_t wanted_tokens = 0;  // kv_cache_tokens; 0: decide
  std::int64_t max_context_tokens = 0;
  std::int64_t max_running_requests = 0;
  std::int64_t bytes_per_block = 0;  // of one rank
  std::int64_t available_bytes = 0;  // of the host; 0: unknown
  int num_ranks = 1;                 // that share the host's memory
  double static_fraction = 0.0;      // EngineOptions::static_memory_fraction
  std::int64_t weight_bytes = 0;     // counts with a fraction only
};

/// Blocks of one rank's KV cache: enough for every running request at min(context, 4096) tokens and
/// for one at the whole context, within half of the available memory. With a fraction: all that it
/// has room for beside the weights, at most wanted_tokens where those are given.
///
/// @return kOutOfMemory, and kInvalidArgument with a fraction, when not even one block fits.
Result<std::int64_t> decide_kv_blocks(const KvCacheSizing& sizing);

/// Of an engine with these options on this machine, as it is now. The context must be one that
/// decide_context() takes; `limits` are those of one data-parallel rank.
KvCacheSizing kv_cache_sizing(const EngineOptions& options,
                              const ModelConfig& config,
                              const SchedulerLimits& limits,
                              int num_ranks);

/// Bytes of a folder's .safetensors files; 0: it has none.
std::int64_t weight_file_bytes(const std::string& directory);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SIZING_H_
