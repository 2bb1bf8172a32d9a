// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/common/route_rows.h"

namespace halfbyte::cuda {
namespace {

constexpr std::int64_t kMaxExperts = 1024;  // what four rows of a block have room for
constexpr std::int64_t kMaxTopK = 64;       // two a lane

}  // namespace

Status can_run(const RouteRowsShape& shape) {
  if (shape.num_experts > kMaxExperts || shape.top_k > kMaxTopK) {
    return {StatusCode::kUnsupported,
            fmt::format("route_rows: {} of {} experts, want at most {} of {}", shape.top_k,
                        shape.num_experts, kMaxTopK, kMaxExperts)};
  }
  return {};
}

}  // namespace halfbyte::cuda
