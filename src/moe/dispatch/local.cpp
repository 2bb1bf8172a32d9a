// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "moe/dispatch/dispatchers.h"
#include "moe/dispatch/payload.h"
#include "moe/dispatch/row_sums.h"
#include "moe/dispatch/step.h"
#include "moe/dispatch/token_table.h"

namespace halfbyte {
namespace {

class LocalDispatcher final : public Dispatcher {
 public:
  std::string_view name() const override { return "local"; }
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
  DispatchStep step_;
  std::int64_t dropped_routes_ = 0;
};

Status LocalDispatcher::can_run(const DispatchPlan& request) const {
  return check_one_rank(request);
}

Result<DispatchPlan> LocalDispatcher::plan(DispatchPlan request) const {
  HALFBYTE_RETURN_IF_ERROR(can_run(request));
  request.dispatcher = name();
  request.workspace = {};
  HALFBYTE_RETURN_IF_ERROR(set_capacity(request, request.max_tokens_per_rank));
  add_token_table(request);
  add_weighted_input(request);
  return request;
}

Result<DispatchedTokens> LocalDispatcher::dispatch(const DispatchPlan& plan,
                                                   const DispatchInput& input,
                                                   Workspace workspace,
                                                   device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_idle());
  HALFBYTE_RETURN_IF_ERROR(check_input(plan, input, workspace));
  const std::int64_t num_tokens = input.x.rows;
  HALFBYTE_RETURN_IF_ERROR(check_forward_fits(plan, num_tokens, {}));
  const TokenTable table = token_table(plan, workspace);
  store_routing(plan, input.routing, 0, table);
  DispatchedTokens tokens = group_table(plan, num_tokens, table);
  tokens.x = weighted_input(plan, input, workspace);
  dropped_routes_ = count_dropped_routes(input.routing.topk_idx, plan.spec.num_experts);
  step_.begin(num_tokens);
  return tokens;
}

Status LocalDispatcher::combine(const DispatchPlan& plan,
                                const DispatchedTokens& /*tokens*/,
                                const ExpertOutput& output,
                                const SharedExpert& shared,
                                MatrixView y,
                                Workspace workspace,
                                device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_in_flight());
  HALFBYTE_RETURN_IF_ERROR(check_output(plan, output, shared, y, step_.num_tokens()));
  const TokenTable table = token_table(plan, workspace);
  for (std::int64_t token = 0; token < step_.num_tokens(); ++token) {
    const bool present = sum_local_routes(plan, table, output, token, table.row_sum);
    finish_row(present, table.row_sum, shared, token, y);
  }
  step_.end();
  return {};
}

}  // namespace

Status check_one_rank(const DispatchPlan& request) {
  if (request.tp_size != 1 || request.ep_size != 1 || request.dp_size != 1) {
    return {StatusCode::kInvalidArgument,
            fmt::format("the local dispatcher serves one rank, asked for tp {} ep {} dp {}",
                        request.tp_size, request.ep_size, request.dp_size)};
  }
  if (request.payload != Payload::kAsGiven) {
    return {StatusCode::kUnsupported,
            "nothing travels on one rank, so there is no NVFP4 payload: leave nvfp4 dispatch off"};
  }
  return {};
}

std::unique_ptr<Dispatcher> make_local_dispatcher() {
  return std::make_unique<LocalDispatcher>();
}

}  // namespace halfbyte
