// SPDX-License-Identifier: Apache-2.0
//
// Sums of expert rows in the fixed order of nvfp4-moe 9.5: first over a rank's own routes, then
// over ranks, then the shared expert, then one rounding.
#ifndef HALFBYTE_MOE_DISPATCH_ROW_SUMS_H_
#define HALFBYTE_MOE_DISPATCH_ROW_SUMS_H_

#include <cstdint>
#include <span>

#include "moe/dispatch/token_table.h"
#include "moe/dispatcher.h"

namespace halfbyte {

/// The weighted sum of the routes that row `row_idx` of the table has on this rank, into `sum` [H].
/// False, and `sum` untouched, when it has none.
bool sum_local_routes(const DispatchPlan& plan,
                      const TokenTable& table,
                      const ExpertOutput& output,
                      std::int64_t row_idx,
                      float* sum);

/// Joins the partial sums of all tp ranks, in rank order, null where absent, into `sum` [H]: those
/// of one expert rank first (moe_tp), then over expert ranks by the tree, or ascending where the
/// partition does not follow the tree. `wide` is scratch [tp, H] and may hold the partials. False
/// when all are absent.
bool join_ranks(const DispatchPlan& plan,
                std::span<const float*> partials,
                float* tree_scratch,
                float* wide,
                float* sum);

/// Row `row_idx` of y from its routed sum (`present`: else it counts as zero) and the shared
/// expert's row, if `shared` has one: added in fp32, rounded once. `sum` [H] is overwritten.
void finish_row(bool present,
                float* sum,
                const SharedExpert& shared,
                std::int64_t row_idx,
                const MatrixView& y);

/// Adds a shared expert's row to a partial sum, or takes it as the partial when there is none.
void add_shared_row(const SharedExpert& shared, std::int64_t row_idx, bool present, float* sum);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_ROW_SUMS_H_
