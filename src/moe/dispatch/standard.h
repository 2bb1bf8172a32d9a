// SPDX-License-Identifier: Apache-2.0
//
// The two forms of the standard scheme: tokens replicated on all ranks (dp 1), or gathered from the
// data-parallel groups. Tokens travel in windows, so that buffers do not grow with the capacity.
#ifndef HALFBYTE_MOE_DISPATCH_STANDARD_H_
#define HALFBYTE_MOE_DISPATCH_STANDARD_H_

#include <cstdint>
#include <span>

#include "moe/dispatch/exchange.h"
#include "moe/dispatcher.h"

namespace halfbyte {

/// Tokens of one data-parallel group that travel at once, at most.
std::int64_t window_tokens(const DispatchPlan& plan);

void add_replicated_buffers(DispatchPlan& plan);
/// Every rank's partial sums of every token to every rank; in mode `fast` an all-reduce.
Status combine_replicated(const CombineCall& call);

void add_gathered_buffers(DispatchPlan& plan);
/// Rows of all groups, in group order, into the table and the token rows; sum(tokens_per_rank)
/// rows.
Status gather_tokens(const DispatchPlan& plan,
                     const DispatchInput& input,
                     Workspace workspace,
                     Transport& transport);
/// Partial sums to the ranks of each token's group; in mode `fast` with dp = tp a reduce-scatter.
Status combine_gathered(const CombineCall& call);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_STANDARD_H_
