// SPDX-License-Identifier: Apache-2.0
//
// What every dispatcher keeps in its workspace between dispatch and combine: ids and weights of the
// rows that entered this rank, their groups, and scratch for one row's sums.
#ifndef HALFBYTE_MOE_DISPATCH_TOKEN_TABLE_H_
#define HALFBYTE_MOE_DISPATCH_TOKEN_TABLE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "moe/dispatch/grouping.h"
#include "moe/dispatcher.h"

namespace halfbyte {

/// Views into the workspace. `rows` of the shapes is plan.capacity_tokens.
struct TokenTable {
  std::int32_t* topk_idx = nullptr;  // [rows, top_k]
  float* topk_weights = nullptr;     // [rows, top_k]; 1 where X was weighted instead
  RouteGroups groups;
  float* row_sum = nullptr;              // [H]: one row on its way
  float* tree_scratch = nullptr;         // [16, H]: of the combine tree
  float* wide_rows = nullptr;            // [max(top_k, tp), H]: 16-bit rows widened
  const float** row_pointers = nullptr;  // [max(top_k, tp)]
};

/// Adds the table's buffers to plan.workspace; needs capacity_tokens, max_routes and the shard.
void add_token_table(DispatchPlan& plan);
TokenTable token_table(const DispatchPlan& plan, Workspace workspace);

/// The buffer `name` of the plan's workspace, which must have it.
std::byte* workspace_buffer(const DispatchPlan& plan, Workspace workspace, std::string_view name);
template <typename T>
T* workspace_buffer_as(const DispatchPlan& plan, Workspace workspace, std::string_view name) {
  return reinterpret_cast<T*>(workspace_buffer(plan, workspace, name));
}

/// Sets capacity, routes and the bytes of a row both ways; kInvalidArgument when the numbers do not
/// fit 31 bits of rows.
Status set_capacity(DispatchPlan& plan, std::int64_t capacity_tokens);

/// What every dispatcher asks of a step before it starts: shapes, dtypes, workspace.
Status check_input(const DispatchPlan& plan, const DispatchInput& input, Workspace workspace);
/// And of combine: `num_tokens` rows of y, of the shared expert, and the rows' dtype.
Status check_output(const DispatchPlan& plan,
                    const ExpertOutput& output,
                    const SharedExpert& shared,
                    const MatrixView& y,
                    std::int64_t num_tokens);

/// Copies ids and weights of `routing` to rows first_row.. of the table (weights become 1 when the
/// spec weights X).
void store_routing(const DispatchPlan& plan,
                   const Routing& routing,
                   std::int64_t first_row,
                   const TokenTable& table);

/// Groups the table's first `num_rows` rows; the result has all but x.
DispatchedTokens group_table(const DispatchPlan& plan,
                             std::int64_t num_rows,
                             const TokenTable& table);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_TOKEN_TABLE_H_
