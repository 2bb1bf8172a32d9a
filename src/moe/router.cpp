// SPDX-License-Identifier: Apache-2.0
#include "moe/router.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/common/route_rows.h"
#include "kernels/reference/router.h"

namespace halfbyte {
namespace {

Status check_shapes(ConstMatrixView logits,
                    std::span<const float> bias,
                    std::int64_t top_k,
                    std::size_t num_idx,
                    std::size_t num_weights) {
  if (logits.dtype != DType::kF32) {
    return {StatusCode::kInvalidArgument,
            fmt::format("router logits are {}, want F32", dtype_name(logits.dtype))};
  }
  if (logits.rows < 0 || (logits.rows > 0 && logits.data == nullptr) ||
      logits.row_stride < logits.cols) {
    return {StatusCode::kInvalidArgument,
            fmt::format("router logits [{}, {}] have stride {} and {} data", logits.rows,
                        logits.cols, logits.row_stride, logits.data == nullptr ? "no" : "some")};
  }
  const auto want = static_cast<std::size_t>(logits.rows * top_k);
  if (num_idx != want || num_weights != want) {
    return {StatusCode::kInvalidArgument,
            fmt::format("topk_idx holds {} and topk_weights {} values, want {} tokens x top_k {}",
                        num_idx, num_weights, logits.rows, top_k)};
  }
  if (!bias.empty() && bias.size() != static_cast<std::size_t>(logits.cols)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("router bias holds {} values, want {} or none", bias.size(), logits.cols)};
  }
  return {};
}

}  // namespace

Status check_router(const RouterSpec& spec, std::int64_t num_experts, std::int64_t top_k) {
  return reference::check_router(spec, num_experts, top_k);
}

Result<std::int64_t> route(const RouterSpec& spec,
                           ConstMatrixView logits,
                           std::span<const float> bias,
                           std::int64_t top_k,
                           bool mark_unroutable,
                           std::span<std::int32_t> topk_idx,
                           std::span<float> topk_weights) {
  HALFBYTE_RETURN_IF_ERROR(check_router(spec, logits.cols, top_k));
  HALFBYTE_RETURN_IF_ERROR(check_shapes(logits, bias, top_k, topk_idx.size(), topk_weights.size()));
  const auto* data = static_cast<const float*>(logits.data);
  const auto k = static_cast<std::size_t>(top_k);
  std::int64_t num_unroutable = 0;
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::span<const float> row(data + t * logits.row_stride,
                                     static_cast<std::size_t>(logits.cols));
    const auto idx = topk_idx.subspan(static_cast<std::size_t>(t) * k, k);
    const auto weights = topk_weights.subspan(static_cast<std::size_t>(t) * k, k);
    if (reference::route_row(spec, row, bias, idx, weights)) continue;
    ++num_unroutable;
    if (mark_unroutable) std::fill(idx.begin(), idx.end(), -1);
  }
  return num_unroutable;
}

Status route_on_device(const RouterSpec& spec,
                       ConstMatrixView logits,
                       std::span<const float> bias,
                       std::int64_t top_k,
                       std::span<std::int32_t> topk_idx,
                       std::span<float> topk_weights,
                       CUstream_st* stream) {
  HALFBYTE_RETURN_IF_ERROR(check_router(spec, logits.cols, top_k));
  HALFBYTE_RETURN_IF_ERROR(check_shapes(logits, bias, top_k, topk_idx.size(), topk_weights.size()));
  cuda::RouteRowsShape shape = {logits.rows, logits.cols, top_k, spec.method};
  shape.softmax = reference::router_scores_by_softmax(spec);
  shape.renormalize = reference::router_renormalizes(spec);
  if (reference::router_has_groups(spec)) {
    shape.num_groups = spec.num_groups;
    shape.topk_group = spec.topk_group;
  }
  shape.scale = spec.routed_scaling_factor;
  HALFBYTE_RETURN_IF_ERROR(can_run(shape));
  const bool biased = reference::router_uses_bias(spec.method) && !bias.empty();
  const cuda::RouteRowsArgs args = {static_cast<const float*>(logits.data), logits.row_stride,
                                    biased ? bias.data() : nullptr, topk_idx.data(),
                                    topk_weights.data()};
  return launch(shape, args, stream);
}

}  // namespace halfbyte
