// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/token_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "kernels/reference/combine.h"
#include "moe/dispatch/payload.h"

namespace halfbyte {
namespace {

std::size_t pointers_of(const DispatchPlan& plan) {
  return static_cast<std::size_t>(std::max<std::int64_t>(plan.spec.top_k, plan.tp_size));
}

Status check_matrix(std::string_view what,
                    const ConstMatrixView& view,
                    std::int64_t rows,
                    const DispatchPlan& plan,
                    DType dtype) {
  if (view.dtype != dtype || view.rows != rows || view.cols != plan.spec.hidden_size ||
      view.row_stride < view.cols) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} must be {} [{}, {}], got {} [{}, {}] with a row stride of {}", what,
                        dtype_name(dtype), rows, plan.spec.hidden_size, dtype_name(view.dtype),
                        view.rows, view.cols, view.row_stride)};
  }
  if (rows > 0 && view.data == nullptr) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} has {} rows and a null pointer", what, rows)};
  }
  return {};
}

}  // namespace

std::byte* workspace_buffer(const DispatchPlan& plan, Workspace workspace, std::string_view name) {
  const auto& entries = plan.workspace.entries();
  const auto entry = std::ranges::find_if(
      entries, [name](const auto& candidate) { return candidate.name == name; });
  assert(entry != entries.end());  // a dispatcher asks only for buffers that its own plan added
  return workspace.data + entry->offset;
}

Status set_capacity(DispatchPlan& plan, std::int64_t capacity_tokens) {
  if (plan.max_tokens_per_rank < 1 || capacity_tokens > std::numeric_limits<std::int32_t>::max()) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("a rank may hold 1 to 2^31 - 1 tokens, asked for {} (max_tokens_per_rank {})",
                    capacity_tokens, plan.max_tokens_per_rank)};
  }
  plan.capacity_tokens = capacity_tokens;
  plan.max_routes = capacity_tokens * plan.spec.top_k;
  plan.dispatch_bytes_per_token = static_cast<std::int64_t>(payload_layout(plan).row_bytes);
  plan.combine_bytes_per_token = plan.spec.hidden_size * dtype_bytes(plan.combine_dtype);
  return {};
}

void add_token_table(DispatchPlan& plan) {
  const auto routes = static_cast<std::size_t>(plan.max_routes);
  const auto experts = static_cast<std::size_t>(plan.shard.num_local_experts);
  const std::size_t row_floats = static_cast<std::size_t>(plan.spec.hidden_size) * sizeof(float);
  WorkspaceLayout& layout = plan.workspace;
  layout.add("topk_idx", routes * sizeof(std::int32_t));
  layout.add("topk_weights", routes * sizeof(float));
  layout.add("slot_route", routes * sizeof(std::int64_t));
  layout.add("route_row", routes * sizeof(std::int32_t));
  layout.add("expert_offset", (experts + 1) * sizeof(std::int64_t));
  layout.add("expert_count", experts * sizeof(std::int32_t));
  layout.add("row_sum", row_floats);
  layout.add("tree_scratch", reference::kNumCombineGroups * row_floats);
  layout.add("wide_rows", pointers_of(plan) * row_floats);
  layout.add("row_pointers", pointers_of(plan) * sizeof(const float*));
}

TokenTable token_table(const DispatchPlan& plan, Workspace workspace) {
  TokenTable table;
  table.topk_idx = workspace_buffer_as<std::int32_t>(plan, workspace, "topk_idx");
  table.topk_weights = workspace_buffer_as<float>(plan, workspace, "topk_weights");
  table.groups = {workspace_buffer_as<std::int64_t>(plan, workspace, "expert_offset"),
                  workspace_buffer_as<std::int32_t>(plan, workspace, "expert_count"),
                  workspace_buffer_as<std::int32_t>(plan, workspace, "route_row"),
                  workspace_buffer_as<std::int64_t>(plan, workspace, "slot_route")};
  table.row_sum = workspace_buffer_as<float>(plan, workspace, "row_sum");
  table.tree_scratch = workspace_buffer_as<float>(plan, workspace, "tree_scratch");
  table.wide_rows = workspace_buffer_as<float>(plan, workspace, "wide_rows");
  table.row_pointers = workspace_buffer_as<const float*>(plan, workspace, "row_pointers");
  return table;
}

Status check_input(const DispatchPlan& plan, const DispatchInput& input, Workspace workspace) {
  const std::int64_t num_tokens = input.x.rows;
  HALFBYTE_RETURN_IF_ERROR(check_matrix("x", input.x, num_tokens, plan, plan.spec.x_dtype));
  const auto routes = static_cast<std::size_t>(num_tokens * plan.spec.top_k);
  if (input.routing.topk_idx.size() != routes || input.routing.topk_weights.size() != routes) {
    return {StatusCode::kInvalidArgument,
            fmt::format("topk_idx and topk_weights must hold {} x {} values, got {} and {}",
                        num_tokens, plan.spec.top_k, input.routing.topk_idx.size(),
                        input.routing.topk_weights.size())};
  }
  if (workspace.bytes < plan.workspace.total_bytes() || workspace.data == nullptr) {
    return {StatusCode::kInvalidArgument,
            fmt::format("the dispatcher's workspace needs {} bytes, got {}",
                        plan.workspace.total_bytes(), workspace.bytes)};
  }
  return {};
}

Status check_output(const DispatchPlan& plan,
                    const ExpertOutput& output,
                    const SharedExpert& shared,
                    const MatrixView& y,
                    std::int64_t num_tokens) {
  HALFBYTE_RETURN_IF_ERROR(check_matrix("y", y, num_tokens, plan, plan.spec.y_dtype));
  if (output.rows.dtype != plan.row_dtype) {
    return {StatusCode::kInvalidArgument,
            fmt::format("expert rows must be {}, got {}", dtype_name(plan.row_dtype),
                        dtype_name(output.rows.dtype))};
  }
  if (shared.kind == SharedExpert::Kind::kNone) return {};
  return check_matrix("the shared expert's output", shared.rows, num_tokens, plan, DType::kF32);
}

Status check_forward_fits(const DispatchPlan& plan,
                          std::int64_t num_tokens,
                          std::span<const std::int64_t> tokens_per_rank) {
  const bool all_to_all = plan.dispatcher == "all_to_all";
  std::int64_t tokens = num_tokens;
  if (!tokens_per_rank.empty()) {
    tokens = all_to_all || plan.dp_size == 1
                 ? *std::max_element(tokens_per_rank.begin(), tokens_per_rank.end())
                 : std::reduce(tokens_per_rank.begin(), tokens_per_rank.end());
  }
  const std::int64_t limit = all_to_all ? plan.max_tokens_per_rank : plan.capacity_tokens;
  if (tokens <= limit) return {};
  return {
      StatusCode::kCapacityExceeded,
      fmt::format("a forward of {} tokens{}, the plan holds {}: cut it, or plan for more", tokens,
                  all_to_all         ? " on one rank"
                  : plan.dp_size > 1 ? " over all ranks"
                                     : "",
                  limit)};
}

void store_routing(const DispatchPlan& plan,
                   const Routing& routing,
                   std::int64_t first_row,
                   const TokenTable& table) {
  const std::int64_t first = first_row * plan.spec.top_k;
  std::ranges::copy(routing.topk_idx, table.topk_idx + first);
  if (plan.spec.apply_router_weight_on_input) {
    std::fill_n(table.topk_weights + first, routing.topk_weights.size(), 1.0F);
  } else {
    std::ranges::copy(routing.topk_weights, table.topk_weights + first);
  }
}

DispatchedTokens group_table(const DispatchPlan& plan,
                             std::int64_t num_rows,
                             const TokenTable& table) {
  const auto routes = static_cast<std::size_t>(num_rows * plan.spec.top_k);
  DispatchedTokens tokens;
  tokens.num_routes =
      group_routes({table.topk_idx, routes}, plan.spec.top_k, plan.shard, table.groups);
  tokens.num_rows = num_rows;
  tokens.route_row = table.groups.route_row;
  tokens.expert_offset = table.groups.expert_offset;
  tokens.expert_count = table.groups.expert_count;
  return tokens;
}

}  // namespace halfbyte
