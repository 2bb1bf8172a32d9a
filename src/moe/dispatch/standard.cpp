// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/standard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "moe/dispatch/dispatchers.h"
#include "moe/dispatch/payload.h"
#include "moe/dispatch/rank_map.h"
#include "moe/dispatch/step.h"

namespace halfbyte {
namespace {

// Large enough that a decode step is one exchange, small enough that the buffers of a long prefill
// stay a few rows per rank.
constexpr std::int64_t kWindowTokens = 1024;

class StandardDispatcher final : public Dispatcher {
 public:
  explicit StandardDispatcher(Transport* transport) : transport_(transport) {}

  std::string_view name() const override { return "standard"; }
  Status can_run(const DispatchPlan& request) const override;
  Result<DispatchPlan> plan(DispatchPlan request) const override;
  Result<DispatchedTokens> dispatch(const DispatchPlan& plan,
                                    const DispatchInput& input,
                                    Workspace workspace,
                                    device::Stream* stream) override;
  Status combine(const DispatchPlan& plan,
                 const DispatchedTokens& tokens,
                 const ExpertOutput& output,
                 const SharedExpert& shared,
                 MatrixView y,
                 Workspace workspace,
                 device::Stream* stream) override;
  std::int64_t last_dropped_routes() const override { return dropped_routes_; }

 private:
  Transport* transport_;
  DispatchStep step_;
  std::int64_t dropped_routes_ = 0;
};

// With dp 1 tokens are replicated and stay where they are.
DispatchedTokens replicate_tokens(const DispatchPlan& plan,
                                  const DispatchInput& input,
                                  Workspace workspace) {
  const TokenTable table = token_table(plan, workspace);
  store_routing(plan, input.routing, 0, table);
  DispatchedTokens tokens = group_table(plan, input.x.rows, table);
  tokens.x = weighted_input(plan, input, workspace);
  return tokens;
}

Status StandardDispatcher::can_run(const DispatchPlan& request) const {
  HALFBYTE_RETURN_IF_ERROR(check_rank_map(request));
  HALFBYTE_RETURN_IF_ERROR(check_payload(request));
  if (request.dp_size > 1 || request.payload == Payload::kAsGiven) return {};
  return {StatusCode::kUnsupported,
          "the standard scheme sends no activations when dp is 1, so there is no NVFP4 payload: "
          "leave nvfp4 dispatch off"};
}

Result<DispatchPlan> StandardDispatcher::plan(DispatchPlan request) const {
  HALFBYTE_RETURN_IF_ERROR(can_run(request));
  request.dispatcher = name();
  request.workspace = {};
  HALFBYTE_RETURN_IF_ERROR(set_capacity(request, request.max_tokens_per_rank * request.dp_size));
  add_token_table(request);
  if (request.dp_size == 1) {
    add_weighted_input(request);
    add_replicated_buffers(request);
  } else {
    add_gathered_buffers(request);
  }
  return request;
}

Result<DispatchedTokens> StandardDispatcher::dispatch(const DispatchPlan& plan,
                                                      const DispatchInput& input,
                                                      Workspace workspace,
                                                      device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_idle());
  HALFBYTE_RETURN_IF_ERROR(check_transport(plan, transport_));
  HALFBYTE_RETURN_IF_ERROR(check_input(plan, input, workspace));
  HALFBYTE_RETURN_IF_ERROR(check_token_counts(plan, input.tokens_per_rank, input.x.rows));
  HALFBYTE_RETURN_IF_ERROR(check_forward_fits(plan, input.x.rows, input.tokens_per_rank));
  DispatchedTokens tokens;
  if (plan.dp_size == 1) {
    tokens = replicate_tokens(plan, input, workspace);
  } else {
    HALFBYTE_RETURN_IF_ERROR(gather_tokens(plan, input, workspace, *transport_));
    const auto& counts = input.tokens_per_rank;
    const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    tokens = group_table(plan, rows, token_table(plan, workspace));
    set_token_rows(plan, token_rows(plan, workspace, true), tokens);
  }
  dropped_routes_ = count_dropped_routes(input.routing.topk_idx, plan.spec.num_experts);
  step_.begin(input.x.rows);
  return tokens;
}

Status StandardDispatcher::combine(const DispatchPlan& plan,
                                   const DispatchedTokens& /*tokens*/,
                                   const ExpertOutput& output,
                                   const SharedExpert& shared,
                                   MatrixView y,
                                   Workspace workspace,
                                   device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_in_flight());
  HALFBYTE_RETURN_IF_ERROR(check_output(plan, output, shared, y, step_.num_tokens()));
  if (shared.kind == SharedExpert::Kind::kSharded && plan.dp_size > 1) {
    return {StatusCode::kUnsupported,
            fmt::format("a sharded shared expert needs every rank's part of every token, and with "
                        "dp {} a rank has its own tokens only: replicate it",
                        plan.dp_size)};
  }
  const CombineCall call = {
      plan,        workspace,         token_table(plan, workspace), output, shared, y,
      *transport_, step_.num_tokens()};
  HALFBYTE_RETURN_IF_ERROR(plan.dp_size == 1 ? combine_replicated(call) : combine_gathered(call));
  step_.end();
  return {};
}

}  // namespace

std::int64_t window_tokens(const DispatchPlan& plan) {
  return std::min(plan.max_tokens_per_rank, kWindowTokens);
}

std::unique_ptr<Dispatcher> make_standard_dispatcher(Transport* transport) {
  return std::make_unique<StandardDispatcher>(transport);
}

}  // namespace halfbyte
