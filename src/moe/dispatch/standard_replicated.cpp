// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "moe/dispatch/rank_map.h"
#include "moe/dispatch/row_sums.h"
#include "moe/dispatch/standard.h"

namespace halfbyte {
namespace {

bool shared_is_sharded(const CombineCall& call) {
  return call.shared.kind == SharedExpert::Kind::kSharded;
}

// This rank's part of a token: its routes, and its part of a sharded shared expert.
bool sum_partial(const CombineCall& call, std::int64_t token_idx, float* sum) {
  const bool present = sum_local_routes(call.plan, call.table, call.output, token_idx, sum);
  if (!shared_is_sharded(call)) return present;
  add_shared_row(call.shared, token_idx, present, sum);
  return true;
}

// What is added after the reduction: nothing when the ranks' parts were in it.
SharedExpert shared_after_reduction(const CombineCall& call) {
  return shared_is_sharded(call) ? SharedExpert{} : call.shared;
}

bool has_partial_of(const CombineCall& call, std::int64_t token_idx, int rank) {
  return shared_is_sharded(call) ||
         has_expert_on(call.plan, call.table.topk_idx + token_idx * call.plan.spec.top_k,
                       rank / moe_tp_size(call.plan));
}

void finish_token(const CombineCall& call,
                  std::int64_t token_idx,
                  const std::byte* received,
                  std::size_t block_bytes) {
  const DispatchPlan& plan = call.plan;
  const std::span<const float*> partials(call.table.row_pointers,
                                         static_cast<std::size_t>(plan.tp_size));
  for (int rank = 0; rank < plan.tp_size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    partials[index] = has_partial_of(call, token_idx, rank)
                          ? read_wire_row(plan, received + index * block_bytes,
                                          call.table.wide_rows + rank * plan.spec.hidden_size)
                          : nullptr;
  }
  const bool present =
      join_ranks(plan, partials, call.table.tree_scratch, call.table.wide_rows, call.table.row_sum);
  finish_row(present, call.table.row_sum, shared_after_reduction(call), token_idx, call.y);
}

Status combine_window(const CombineCall& call, std::int64_t first, std::int64_t count) {
  const DispatchPlan& plan = call.plan;
  const std::size_t row_bytes = wire_bytes(plan);
  const std::size_t block_bytes = static_cast<std::size_t>(count) * row_bytes;
  std::byte* send = workspace_buffer(plan, call.workspace, "send");
  std::byte* receive = workspace_buffer(plan, call.workspace, "receive");
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* row = send + static_cast<std::size_t>(i) * row_bytes;
    if (sum_partial(call, first + i, call.table.row_sum)) {
      write_wire_row(plan, call.table.row_sum, row);
    } else {
      std::fill_n(row, row_bytes, std::byte{0});  // absent: never read, but sent
    }
  }
  HALFBYTE_RETURN_IF_ERROR(call.transport.all_gather(
      {send, block_bytes}, {receive, block_bytes * static_cast<std::size_t>(plan.tp_size)}, {}));
  for (std::int64_t i = 0; i < count; ++i) {
    finish_token(call, first + i, receive + static_cast<std::size_t>(i) * row_bytes, block_bytes);
  }
  return {};
}

Status combine_window_fast(const CombineCall& call, std::int64_t first, std::int64_t count) {
  const DispatchPlan& plan = call.plan;
  const std::int64_t cols = plan.spec.hidden_size;
  auto* sums = workspace_buffer_as<float>(plan, call.workspace, "send");
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = sums + i * cols;
    if (!sum_partial(call, first + i, row)) std::fill_n(row, cols, 0.0F);
    round_to_wire(plan, row, call.table.wide_rows);
  }
  const std::size_t bytes = static_cast<std::size_t>(count * cols) * sizeof(float);
  HALFBYTE_RETURN_IF_ERROR(call.transport.all_reduce({reinterpret_cast<std::byte*>(sums), bytes},
                                                     DType::kF32, ReduceOp::kSum, {}));
  for (std::int64_t i = 0; i < count; ++i) {
    finish_row(true, sums + i * cols, shared_after_reduction(call), first + i, call.y);
  }
  return {};
}

}  // namespace

void add_replicated_buffers(DispatchPlan& plan) {
  const auto window = static_cast<std::size_t>(window_tokens(plan));
  if (plan.combine_mode == CombineMode::kFast) {
    plan.workspace.add("send",
                       window * static_cast<std::size_t>(plan.spec.hidden_size) * sizeof(float));
    return;
  }
  plan.workspace.add("send", window * wire_bytes(plan));
  plan.workspace.add("receive", window * wire_bytes(plan) * static_cast<std::size_t>(plan.tp_size));
}

Status combine_replicated(const CombineCall& call) {
  const std::int64_t window = window_tokens(call.plan);
  for (std::int64_t first = 0; first < call.num_tokens; first += window) {
    const std::int64_t count = std::min(window, call.num_tokens - first);
    HALFBYTE_RETURN_IF_ERROR(call.plan.combine_mode == CombineMode::kFast
                                 ? combine_window_fast(call, first, count)
                                 : combine_window(call, first, count));
  }
  return {};
}

}  // namespace halfbyte
