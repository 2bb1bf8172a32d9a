// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/row_sums.h"

#include <algorithm>

#include "formats/convert.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/reference/combine.h"

namespace halfbyte {
namespace {

void add_row(const float* src, std::int64_t cols, float* sum) {
  for (std::int64_t col = 0; col < cols; ++col)
    sum[col] += src[col];
}

// Row `route` of the experts' output as fp32: in place, or widened into `wide`.
const float* wide_output_row(const ExpertOutput& output, std::int64_t route, float* wide) {
  const MatrixView& rows = output.rows;
  const auto* row =
      static_cast<const std::byte*>(rows.data) + route * rows.row_stride * dtype_bytes(rows.dtype);
  if (rows.dtype == DType::kF32) return reinterpret_cast<const float*>(row);
  widen_to_f32(rows.dtype, row, rows.cols, wide);
  return wide;
}

// True when each expert rank owns a whole subtree of the 16 groups.
bool follows_tree(const DispatchPlan& plan) {
  const int groups = reference::kNumCombineGroups;
  return plan.ep_size == 1 || (plan.spec.num_experts % groups == 0 && groups % plan.ep_size == 0);
}

// Replaces the partials of each expert rank's moe_tp ranks by their sum, which lands in `wide`.
// Returns the expert ranks' partials, compacted to the front.
std::span<const float*> fold_moe_tp(const DispatchPlan& plan,
                                    std::span<const float*> partials,
                                    float* wide) {
  const auto moe_tp = static_cast<std::size_t>(plan.tp_size / plan.ep_size);
  const std::int64_t cols = plan.spec.hidden_size;
  for (std::size_t first = 0; first < partials.size(); first += moe_tp) {
    float* sum = nullptr;
    for (std::size_t rank = first; rank < first + moe_tp; ++rank) {
      if (partials[rank] == nullptr) continue;
      if (sum != nullptr) {
        add_row(partials[rank], cols, sum);
        continue;
      }
      sum = wide + static_cast<std::int64_t>(first) * cols;
      if (partials[rank] != sum) std::copy_n(partials[rank], cols, sum);
    }
    partials[first / moe_tp] = sum;
  }
  return partials.first(partials.size() / moe_tp);
}

bool add_ascending(std::span<const float* const> partials, std::int64_t cols, float* sum) {
  bool present = false;
  for (const float* partial : partials) {
    if (partial == nullptr) continue;
    if (present) {
      add_row(partial, cols, sum);
    } else {
      std::copy_n(partial, cols, sum);
    }
    present = true;
  }
  return present;
}

const float* shared_row(const SharedExpert& shared, std::int64_t row_idx) {
  return static_cast<const float*>(shared.rows.data) + row_idx * shared.rows.row_stride;
}

}  // namespace

bool sum_local_routes(const DispatchPlan& plan,
                      const TokenTable& table,
                      const ExpertOutput& output,
                      std::int64_t row_idx,
                      float* sum) {
  const std::int64_t top_k = plan.spec.top_k;
  const std::int64_t cols = plan.spec.hidden_size;
  const std::int64_t* routes = table.groups.slot_route + row_idx * top_k;
  for (std::int64_t slot = 0; slot < top_k; ++slot) {
    table.row_pointers[slot] =
        routes[slot] < 0 ? nullptr
                         : wide_output_row(output, routes[slot], table.wide_rows + slot * cols);
  }
  const auto slots = static_cast<std::size_t>(top_k);
  return reference::combine_token({table.topk_idx + row_idx * top_k, slots},
                                  {table.topk_weights + row_idx * top_k, slots},
                                  {table.row_pointers, slots}, plan.spec.num_experts, cols,
                                  table.tree_scratch, sum, cpu::best_kernel_table().add_weighted);
}

bool join_ranks(const DispatchPlan& plan,
                std::span<const float*> partials,
                float* tree_scratch,
                float* wide,
                float* sum) {
  const std::int64_t cols = plan.spec.hidden_size;
  const std::span<const float*> by_expert_rank =
      plan.tp_size == plan.ep_size ? partials : fold_moe_tp(plan, partials, wide);
  if (!follows_tree(plan)) return add_ascending(by_expert_rank, cols, sum);
  return reference::join_partials(by_expert_rank, cols, tree_scratch, sum);
}

void add_shared_row(const SharedExpert& shared, std::int64_t row_idx, bool present, float* sum) {
  const float* row = shared_row(shared, row_idx);
  if (present) {
    add_row(row, shared.rows.cols, sum);
  } else {
    std::copy_n(row, shared.rows.cols, sum);
  }
}

void finish_row(bool present,
                float* sum,
                const SharedExpert& shared,
                std::int64_t row_idx,
                const MatrixView& y) {
  if (shared.kind != SharedExpert::Kind::kNone) {
    add_shared_row(shared, row_idx, present, sum);
  } else if (!present) {
    std::fill_n(sum, y.cols, 0.0F);
  }
  auto* row = static_cast<std::byte*>(y.data) + row_idx * y.row_stride * dtype_bytes(y.dtype);
  narrow_from_f32(y.dtype, sum, y.cols, row);
}

}  // namespace halfbyte
