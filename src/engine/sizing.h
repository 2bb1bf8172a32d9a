// SPDX-License-Identifier: Apache-2.0
//
// Sizes that the engine decides by itself; pure, so that they can be tested without a model.
#ifndef HALFBYTE_ENGINE_SIZING_H_
#define HALFBYTE_ENGINE_SIZING_H_

#include <cstdint>

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
};

/// Blocks of one rank's KV cache: enough for every running request at min(context, 4096) tokens and
/// for one at the whole context, within half of the available memory. kOutOfMemory when not even
/// one block fits.
Result<std::int64_t> decide_kv_blocks(const KvCacheSizing& sizing);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SIZING_H_
