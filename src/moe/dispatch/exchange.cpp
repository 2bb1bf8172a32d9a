// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/exchange.h"

#include "formats/convert.h"
#include "moe/dispatch/rank_map.h"
#include "moe/dispatch/row_sums.h"

namespace halfbyte {

void add_peer_bytes(DispatchPlan& plan) {
  plan.workspace.add("peer_bytes",
                     3 * static_cast<std::size_t>(plan.tp_size) * sizeof(std::size_t));
}

PeerBytes peer_bytes(const DispatchPlan& plan, Workspace workspace) {
  const auto ranks = static_cast<std::size_t>(plan.tp_size);
  auto* first = workspace_buffer_as<std::size_t>(plan, workspace, "peer_bytes");
  return {{first, ranks}, {first + ranks, ranks}, {first + 2 * ranks, ranks}};
}

void rewind_cursors(const PeerBytes& peers) {
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < peers.recv.size(); ++rank) {
    peers.cursor[rank] = begin;
    begin += peers.recv[rank];
  }
}

std::size_t wire_bytes(const DispatchPlan& plan) {
  return static_cast<std::size_t>(plan.combine_bytes_per_token);
}

void write_wire_row(const DispatchPlan& plan, const float* sum, std::byte* dst) {
  narrow_from_f32(plan.combine_dtype, sum, plan.spec.hidden_size, dst);
}

void round_to_wire(const DispatchPlan& plan, float* sum, float* scratch) {
  if (plan.combine_dtype == DType::kF32) return;
  narrow_from_f32(plan.combine_dtype, sum, plan.spec.hidden_size, scratch);
  widen_to_f32(plan.combine_dtype, scratch, plan.spec.hidden_size, sum);
}

const float* read_wire_row(const DispatchPlan& plan, const std::byte* src, float* wide) {
  if (plan.combine_dtype == DType::kF32) return reinterpret_cast<const float*>(src);
  widen_to_f32(plan.combine_dtype, src, plan.spec.hidden_size, wide);
  return wide;
}

void finish_home_token(const CombineCall& call,
                       std::int64_t token_idx,
                       const std::int32_t* topk_idx,
                       const std::byte* received,
                       const PeerBytes& peers) {
  const DispatchPlan& plan = call.plan;
  const std::span<const float*> partials(call.table.row_pointers,
                                         static_cast<std::size_t>(plan.tp_size));
  for (std::size_t rank = 0; rank < partials.size(); ++rank) {
    partials[rank] = nullptr;
    if (!has_expert_on(plan, topk_idx, static_cast<int>(rank) / moe_tp_size(plan))) continue;
    float* wide = call.table.wide_rows + static_cast<std::int64_t>(rank) * plan.spec.hidden_size;
    partials[rank] = read_wire_row(plan, received + peers.cursor[rank], wide);
    peers.cursor[rank] += wire_bytes(plan);
  }
  const bool present =
      join_ranks(plan, partials, call.table.tree_scratch, call.table.wide_rows, call.table.row_sum);
  finish_row(present, call.table.row_sum, call.shared, token_idx, call.y);
}

}  // namespace halfbyte
