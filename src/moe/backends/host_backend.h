// SPDX-License-Identifier: Apache-2.0
//
// What the backends of the host (reference, cpu) have in common.
#ifndef HALFBYTE_MOE_BACKENDS_HOST_BACKEND_H_
#define HALFBYTE_MOE_BACKENDS_HOST_BACKEND_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "moe/expert_backend.h"

namespace halfbyte {

/// check_spec, and: the w4a4 modes and w4a8 need NVFP4 experts (kUnsupported).
Status check_host_spec(std::string_view backend, const MoeSpec& spec, ActivationMode mode);

/// Sizes of a plan request: capacity, shard. Fills max_routes when the caller left it 0.
Status complete_request(ExpertPlan& plan);

/// The gated half is there exactly when the activation wants it, every matrix has the plan's format
/// and the shard's shape; kInvalidArgument names the projection.
Status check_expert(const ExpertPlan& plan,
                    std::int64_t local_expert_idx,
                    const CanonicalExpert& expert);

/// Every vector of `scales` has one value per local expert.
Status check_scales(const ExpertPlan& plan, const ExpertScales& scales);

/// What is wrong with a step's tokens, before anything is written. kCapacityExceeded: more rows or
/// routes than the plan holds.
Status check_tokens(const ExpertPlan& plan,
                    const DispatchedTokens& tokens,
                    const ExpertOutput& output,
                    Workspace workspace);

/// The row of x that route `route` reads.
inline std::int64_t row_of_route(const DispatchedTokens& tokens, std::int64_t route) {
  return tokens.route_row != nullptr ? tokens.route_row[route] : route;
}

/// Row `row` of x as given, widened to fp32 [H]. Requires x.data.
void widen_x_row(const DispatchedTokens& tokens, std::int64_t row, float* dst);

/// "bf16", "f16" or "fp32".
std::string activation_dtype_name(DType dtype);

inline bool is_w4a4(ActivationMode mode) {
  return mode == ActivationMode::kW4a4 || mode == ActivationMode::kW4a4Dynamic;
}

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_HOST_BACKEND_H_
