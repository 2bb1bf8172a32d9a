// SPDX-License-Identifier: Apache-2.0
//
// How many tokens one forward may hold: one object that scheduler, transport, backends and graphs
// read.
#ifndef HALFBYTE_MOE_TOKEN_BUDGET_H_
#define HALFBYTE_MOE_TOKEN_BUDGET_H_

#include <cstdint>
#include <string>

#include "halfbyte/result.h"

namespace halfbyte {

enum class DisaggregationMode : std::int32_t { kNull = 0, kPrefill = 1, kDecode = 2 };

/// Options as given; evaluated after every one they depend on is resolved.
struct TokenBudgetOptions {
  std::int64_t max_prefill_tokens = 16384;
  std::int64_t chunked_prefill_size = 0;      // 0: not given
  std::int64_t prefill_graph_max_tokens = 0;  // --piecewise-cuda-graph-max-tokens
  bool disable_prefill_graphs = false;        // --disable-piecewise-cuda-graph
  std::int64_t decode_graph_max_bs = 0;       // --cuda-graph-max-bs; 0: decode graphs off
  std::int64_t max_running_requests = 0;
  std::string speculative_algorithm;  // empty: none
  std::int64_t speculative_num_draft_tokens = 0;
  DisaggregationMode disaggregation = DisaggregationMode::kNull;
  std::int64_t max_dispatch_tokens_per_rank = 0;  // --moe-max-dispatch-tokens-per-rank; 0: decide
  std::string a2a_backend = "none";
  int ep_size = 1;
  int dp_size = 1;
};

struct TokenBudget {
  std::int64_t max_tokens_per_rank = 0;           // B
  std::int64_t max_decode_tokens_per_rank = 0;    // Bd
  std::int64_t max_dispatch_tokens_per_rank = 0;  // D
  std::int64_t capacity_tokens = 0;               // entering the experts of one rank (10.4)
  std::int64_t max_forward_tokens = 0;            // what the scheduler may form: min(B, D) or B
  std::int64_t tokens_per_decode_request = 1;     // spec
};

/// nvfp4-moe section 10, V1 and V2 included: kInvalidArgument with the remedy before anything is
/// loaded.
Result<TokenBudget> make_token_budget(const TokenBudgetOptions& options);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_TOKEN_BUDGET_H_
