// SPDX-License-Identifier: Apache-2.0
//
// `local` on a CUDA device: the same permutation and the same sums as on the host, in two launches;
// nothing of a step is known to the host.
#include <fmt/format.h>

#include "device/stream.h"
#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/common/group_rows.h"
#include "moe/dispatch/dispatchers.h"
#include "moe/dispatch/step.h"
#include "moe/dispatch/token_table.h"

namespace halfbyte {
namespace {

cuda::GroupRowsShape group_shape(const DispatchPlan& plan, std::int64_t num_tokens) {
  return {.num_tokens = num_tokens,
          .top_k = static_cast<int>(plan.spec.top_k),
          .num_experts = plan.spec.num_experts,
          .first_expert = plan.shard.first_expert,
          .num_local_experts = static_cast<int>(plan.shard.num_local_experts)};
}

cuda::CombineRowsShape combine_shape(const DispatchPlan& plan, std::int64_t num_tokens) {
  return {.num_tokens = num_tokens,
          .top_k = static_cast<int>(plan.spec.top_k),
          .num_experts = plan.spec.num_experts,
          .hidden_size = plan.spec.hidden_size,
          .row_dtype = plan.row_dtype,
          .y_dtype = plan.spec.y_dtype};
}

class LocalCudaDispatcher final : public Dispatcher {
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
  // The host does not know.
  std::int64_t last_dropped_routes() const override { return 0; }

 private:
  DispatchStep step_;
  Routing routing_;  // of the step in flight
};

Status LocalCudaDispatcher::can_run(const DispatchPlan& request) const {
  HALFBYTE_RETURN_IF_ERROR(check_one_rank(request));
  HALFBYTE_RETURN_IF_ERROR(cuda::can_run(group_shape(request, request.max_tokens_per_rank)));
  return cuda::can_run(combine_shape(request, request.max_tokens_per_rank));
}

Result<DispatchPlan> LocalCudaDispatcher::plan(DispatchPlan request) const {
  HALFBYTE_RETURN_IF_ERROR(can_run(request));
  request.dispatcher = name();
  request.workspace = {};
  HALFBYTE_RETURN_IF_ERROR(set_capacity(request, request.max_tokens_per_rank));
  const auto experts = static_cast<std::size_t>(request.shard.num_local_experts);
  const auto routes = static_cast<std::size_t>(request.max_routes);
  WorkspaceLayout& layout = request.workspace;
  layout.add("expert_offset", (experts + 1) * sizeof(std::int64_t));
  layout.add("expert_count", experts * sizeof(std::int32_t));
  layout.add("route_row", routes * sizeof(std::int32_t));
  layout.add("slot_route", routes * sizeof(std::int32_t));
  layout.add("group_scratch",
             select_config(group_shape(request, request.capacity_tokens)).workspace_bytes);
  return request;
}

Result<DispatchedTokens> LocalCudaDispatcher::dispatch(const DispatchPlan& plan,
                                                       const DispatchInput& input,
                                                       Workspace workspace,
                                                       device::Stream* stream) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_idle());
  HALFBYTE_RETURN_IF_ERROR(check_input(plan, input, workspace));
  const std::int64_t num_tokens = input.x.rows;
  HALFBYTE_RETURN_IF_ERROR(check_forward_fits(plan, num_tokens, {}));
  cuda::GroupRowsArgs args;
  args.topk_idx = input.routing.topk_idx.data();
  args.num_valid_tokens = input.routing.num_valid_tokens;
  args.expert_offset = workspace_buffer_as<std::int64_t>(plan, workspace, "expert_offset");
  args.expert_count = workspace_buffer_as<std::int32_t>(plan, workspace, "expert_count");
  args.route_row = workspace_buffer_as<std::int32_t>(plan, workspace, "route_row");
  args.slot_route = workspace_buffer_as<std::int32_t>(plan, workspace, "slot_route");
  args.workspace = workspace_buffer(plan, workspace, "group_scratch");
  const cuda::GroupRowsShape shape = group_shape(plan, num_tokens);
  HALFBYTE_RETURN_IF_ERROR(launch(shape, select_config(shape), args, stream->handle()));
  routing_ = input.routing;
  step_.begin(num_tokens);
  DispatchedTokens tokens;
  tokens.x = input.x;
  tokens.num_rows = num_tokens;
  tokens.route_row = args.route_row;
  tokens.expert_offset = args.expert_offset;
  tokens.expert_count = args.expert_count;
  tokens.num_routes = num_tokens == 0 ? 0 : -1;
  return tokens;
}

Status LocalCudaDispatcher::combine(const DispatchPlan& plan,
                                    const DispatchedTokens& /*tokens*/,
                                    const ExpertOutput& output,
                                    const SharedExpert& shared,
                                    MatrixView y,
                                    Workspace workspace,
                                    device::Stream* stream) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_in_flight());
  HALFBYTE_RETURN_IF_ERROR(check_output(plan, output, shared, y, step_.num_tokens()));
  cuda::CombineRowsArgs args;
  args.rows = output.rows.data;
  args.topk_idx = routing_.topk_idx.data();
  args.topk_weights = routing_.topk_weights.data();
  args.slot_route = workspace_buffer_as<std::int32_t>(plan, workspace, "slot_route");
  args.num_valid_tokens = routing_.num_valid_tokens;
  if (shared.kind != SharedExpert::Kind::kNone)
    args.shared_rows = static_cast<const float*>(shared.rows.data);
  args.y = y.data;
  const cuda::CombineRowsShape shape = combine_shape(plan, step_.num_tokens());
  HALFBYTE_RETURN_IF_ERROR(launch(shape, select_config(shape), args, stream->handle()));
  step_.end();
  return {};
}

}  // namespace

std::unique_ptr<Dispatcher> make_local_cuda_dispatcher() {
  return std::make_unique<LocalCudaDispatcher>();
}

}  // namespace halfbyte
