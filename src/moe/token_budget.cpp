// SPDX-License-Identifier: Apache-2.0
#include "moe/token_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/checked.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 31) - 1;  // ids and rows are int32
constexpr std::int64_t kMaxRanks = std::int64_t{1} << 16;
constexpr std::int64_t kDispatchRowTile = 128;         // row tile, and height of a scale tile
constexpr std::int64_t kDefaultDispatchTokens = 4096;  // a usual prefill step in one dispatch

constexpr std::string_view kDispatchOption = "--moe-max-dispatch-tokens-per-rank";

Status check_range(std::string_view option,
                   std::int64_t value,
                   std::int64_t low,
                   std::int64_t high) {
  if (value >= low && value <= high) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} is {}, want {} .. {}", option, value, low, high)};
}

Status check_options(const TokenBudgetOptions& options) {
  HALFBYTE_RETURN_IF_ERROR(
      check_range("--max-prefill-tokens", options.max_prefill_tokens, 1, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(check_range("--piecewise-cuda-graph-max-tokens",
                                       options.prefill_graph_max_tokens, 0, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(
      check_range("--cuda-graph-max-bs", options.decode_graph_max_bs, 0, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(
      check_range("--max-running-requests", options.max_running_requests, 0, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(check_range("--speculative-num-draft-tokens",
                                       options.speculative_num_draft_tokens, 0, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(
      check_range(kDispatchOption, options.max_dispatch_tokens_per_rank, 0, kMaxTokens));
  HALFBYTE_RETURN_IF_ERROR(check_range("--ep-size", options.ep_size, 1, kMaxRanks));
  HALFBYTE_RETURN_IF_ERROR(check_range("--dp-size", options.dp_size, 1, kMaxRanks));
  if (options.a2a_backend == "none" || options.a2a_backend == "all_to_all") return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--moe-a2a-backend is \"{}\", want none or all_to_all", options.a2a_backend)};
}

Result<std::int64_t> decode_tokens(const TokenBudgetOptions& options, std::int64_t per_request) {
  std::int64_t requests = options.decode_graph_max_bs;
  if (requests == 0 && options.disaggregation == DisaggregationMode::kDecode) {
    requests = options.max_running_requests;
    if (requests == 0) {
      return Status(StatusCode::kInvalidArgument,
                    "a decode-only node has no decode batch size: set --cuda-graph-max-bs or "
                    "--max-running-requests");
    }
  }
  const std::int64_t tokens = requests * per_request;
  if (tokens <= kMaxTokens) return tokens;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("a decode batch of {} requests x {} tokens exceeds {} tokens", requests,
                            per_request, kMaxTokens));
}

std::int64_t default_dispatch_tokens(const TokenBudgetOptions& options, const TokenBudget& budget) {
  const std::int64_t decode = budget.max_decode_tokens_per_rank;
  const std::int64_t bound =
      options.disaggregation == DisaggregationMode::kDecode ? decode : budget.max_tokens_per_rank;
  return round_up(
      std::max({ceil_div(bound, options.ep_size), decode, std::min(bound, kDefaultDispatchTokens)}),
      kDispatchRowTile);
}

// V1: a forward fits the ranks together. V2: a decode step, which cannot be split, fits one.
Status validate_dispatch_tokens(const TokenBudgetOptions& options, const TokenBudget& budget) {
  const std::int64_t ep = options.ep_size;
  const std::int64_t d = budget.max_dispatch_tokens_per_rank;
  const std::int64_t b = budget.max_tokens_per_rank;
  const std::int64_t bd = budget.max_decode_tokens_per_rank;
  const bool decode_only = options.disaggregation == DisaggregationMode::kDecode;
  const std::int64_t wanted = decode_only ? bd : std::max(ceil_div(b, ep), bd);
  if (!decode_only && d * ep < b) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("all-to-all holds {} x {} = {} tokens, a forward may need {}{}: set {} to {} "
                    "or more, or lower --max-prefill-tokens{}",
                    ep, d, d * ep, b, bd > 0 ? fmt::format(" (a decode step {})", bd) : "",
                    kDispatchOption, wanted,
                    options.decode_graph_max_bs > 0 ? " or --cuda-graph-max-bs" : "")};
  }
  if (d < bd) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("all-to-all holds {0} tokens a rank ({1} x {0} = {2}, for forwards of {3}), "
                    "a decode step needs {4} on one rank and cannot be split: set {5} to {6} or "
                    "more, or lower --cuda-graph-max-bs or --speculative-num-draft-tokens",
                    d, ep, d * ep, b, bd, kDispatchOption, wanted)};
  }
  return {};
}

}  // namespace

Result<TokenBudget> make_token_budget(const TokenBudgetOptions& options) {
  HALFBYTE_RETURN_IF_ERROR(check_options(options));
  TokenBudget budget;
  const bool speculative =
      !options.speculative_algorithm.empty() && options.speculative_num_draft_tokens != 0;
  budget.tokens_per_decode_request = speculative ? options.speculative_num_draft_tokens : 1;

  std::int64_t prefill = options.max_prefill_tokens;
  if (!options.disable_prefill_graphs) {
    prefill = std::max(prefill, options.prefill_graph_max_tokens);
  }
  HALFBYTE_ASSIGN_OR_RETURN(budget.max_decode_tokens_per_rank,
                            decode_tokens(options, budget.tokens_per_decode_request));
  budget.max_tokens_per_rank = std::max(prefill, budget.max_decode_tokens_per_rank);

  budget.max_dispatch_tokens_per_rank = options.max_dispatch_tokens_per_rank != 0
                                            ? options.max_dispatch_tokens_per_rank
                                            : default_dispatch_tokens(options, budget);

  const bool all_to_all = options.a2a_backend == "all_to_all";
  if (!all_to_all) {
    budget.capacity_tokens = budget.max_tokens_per_rank * options.dp_size;
    budget.max_forward_tokens = budget.max_tokens_per_rank;
    return budget;
  }
  HALFBYTE_RETURN_IF_ERROR(validate_dispatch_tokens(options, budget));
  budget.capacity_tokens = budget.max_dispatch_tokens_per_rank * options.ep_size;
  budget.max_forward_tokens =
      std::min(budget.max_tokens_per_rank, budget.max_dispatch_tokens_per_rank);
  return budget;
}

}  // namespace halfbyte
