// SPDX-License-Identifier: Apache-2.0
//
// The fixed order in which expert rows are summed (docs/numerics.md 7): leaves are 16 groups,
// joined by a binary tree, so that the sum does not depend on how experts are spread over ranks.
#ifndef HALFBYTE_KERNELS_REFERENCE_COMBINE_H_
#define HALFBYTE_KERNELS_REFERENCE_COMBINE_H_

#include <cstdint>
#include <span>

namespace halfbyte::reference {

inline constexpr int kNumCombineGroups = 16;

/// The rank that owns an expert when `num_experts` are split over `num_ranks`, the first
/// num_experts % num_ranks ranks holding one more. Also the combine group for num_ranks = 16.
std::int64_t expert_owner(std::int64_t expert_idx,
                          std::int64_t num_experts,
                          std::int64_t num_ranks);
/// First expert of a rank under the same split; for rank == num_ranks it is num_experts.
std::int64_t first_expert_of(std::int64_t rank, std::int64_t num_experts, std::int64_t num_ranks);

/// acc[i] = first ? RN(weight * row[i]) : fma(weight, row[i], acc[i]).
using AddWeighted =
    void (*)(float weight, const float* row, std::int64_t count, bool first, float* acc);
/// Through std::fma, which is a call for each element where the compiler may not use the
/// instruction.
void add_weighted(float weight, const float* row, std::int64_t count, bool first, float* acc);

/// Sums one token's rows into y [hidden_size] in the order of the tree. For slot s, rows[s] is the
/// fp32 row of that route, or null when the slot has no route here. Returns false, and y untouched,
/// when no slot has a row. `scratch` holds kNumCombineGroups * hidden_size floats. `add` may be any
/// kernel with the bits of add_weighted.
bool combine_token(std::span<const std::int32_t> topk_idx,
                   std::span<const float> topk_weights,
                   std::span<const float* const> rows,
                   std::int64_t num_experts,
                   std::int64_t hidden_size,
                   float* scratch,
                   float* y,
                   AddWeighted add = add_weighted);

/// Joins the partial sums of aligned subtrees: partials[r] covers groups [r, r + 1) * 16 /
/// num_partials and is null when absent; num_partials is 1, 2, 4, 8 or 16. `scratch` holds
/// num_partials * hidden_size floats. Returns false when all
/// are absent.
bool join_partials(std::span<const float* const> partials,
                   std::int64_t hidden_size,
                   float* scratch,
                   float* y);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_COMBINE_H_
