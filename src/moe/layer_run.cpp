// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "formats/convert.h"
#include "moe/device_limits.h"
#include "moe/layer_impl.h"

namespace halfbyte {
namespace {

// What kernels ask of an address beside its device.
template <typename View>
Status check_for_kernels(std::string_view name, const View& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if ((view.rows <= 1 || view.row_stride == view.cols) && address % 16 == 0) return {};
  return {
      StatusCode::kInvalidArgument,
      fmt::format("{} has a row stride of {} and lies {} bytes past a multiple of 16; on a CUDA "
                  "device want {} and 0",
                  name, view.row_stride, address % 16, view.cols)};
}

template <typename View>
Status check_matrix(std::string_view name,
                    const View& view,
                    DType dtype,
                    std::int64_t rows,
                    std::int64_t cols,
                    const Device& device = {}) {
  if (view.rows != rows || view.cols != cols || view.dtype != dtype) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} is {} [{}, {}], want {} [{}, {}]", name, dtype_name(view.dtype),
                        view.rows, view.cols, dtype_name(dtype), rows, cols)};
  }
  if (rows == 0) return {};
  if (view.data == nullptr || view.row_stride < cols) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} has {} data and a row stride of {}, want data and at least {}", name,
                        view.data == nullptr ? "no" : "some", view.row_stride, cols)};
  }
  if (view.device != device) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} is on {}, this layer lives on {}", name, device_name(view.device),
                        device_name(device))};
  }
  return device.kind == DeviceKind::kHost ? Status() : check_for_kernels(name, view);
}

template <typename View>
auto* row_pointer(const View& view, std::int64_t row_idx) {
  using Byte = std::conditional_t<std::is_same_v<View, MatrixView>, std::byte, const std::byte>;
  return static_cast<Byte*>(view.data) + row_idx * view.row_stride * dtype_bytes(view.dtype);
}

// Rows of `src` into the same rows of `dst`, rounded to its type. `src` is kF32 or of dst's type.
Status copy_rows(const ConstMatrixView& src, std::int64_t num_rows, const MatrixView& dst) {
  if (src.dtype != dst.dtype && src.dtype != DType::kF32) {
    return {StatusCode::kUnsupported,
            fmt::format("expert rows are {}, y is {}: take y of that type", dtype_name(src.dtype),
                        dtype_name(dst.dtype))};
  }
  for (std::int64_t r = 0; r < num_rows; ++r) {
    if (src.dtype == dst.dtype) {
      std::memcpy(row_pointer(dst, r), row_pointer(src, r),
                  static_cast<std::size_t>(src.cols * dtype_bytes(src.dtype)));
    } else {
      const auto* row = reinterpret_cast<const float*>(row_pointer(src, r));
      narrow_from_f32(dst.dtype, row, src.cols, row_pointer(dst, r));
    }
  }
  return {};
}

}  // namespace

Status MoeLayer::Impl::check_can_step() const {
  HALFBYTE_RETURN_IF_ERROR(failure.clone());
  if (!ready) {
    return {StatusCode::kInvalidArgument,
            "weights were loaded and finish_loading() was not called since"};
  }
  if (!in_flight) return {};
  return {StatusCode::kInvalidArgument,
          "a step is in flight: call finish() before the next start()"};
}

Status MoeLayer::Impl::check_input(ConstMatrixView x,
                                   const Routing& routing,
                                   std::span<const std::int64_t> tokens_per_rank) const {
  HALFBYTE_RETURN_IF_ERROR(check_matrix("x", x, spec.x_dtype, std::max<std::int64_t>(x.rows, 0),
                                        spec.hidden_size, device()));
  const auto want = static_cast<std::size_t>(x.rows * spec.top_k);
  if (routing.topk_idx.size() != want || routing.topk_weights.size() != want) {
    return {StatusCode::kInvalidArgument,
            fmt::format("topk_idx holds {} and topk_weights {} values, want {} tokens x top_k {}",
                        routing.topk_idx.size(), routing.topk_weights.size(), x.rows, spec.top_k)};
  }
  const bool needs_list = plan.dispatch.dp_size > 1;
  if (tokens_per_rank.size() != static_cast<std::size_t>(plan.dispatch.dp_size) &&
      (needs_list || !tokens_per_rank.empty())) {
    return {StatusCode::kInvalidArgument,
            fmt::format("tokens_per_rank lists {} ranks, want dp_size = {}", tokens_per_rank.size(),
                        plan.dispatch.dp_size)};
  }
  return check_forward_fits(plan.dispatch, x.rows, tokens_per_rank);
}

Status MoeLayer::Impl::check_output(std::int64_t rows,
                                    const SharedExpert& shared,
                                    const MatrixView& y) const {
  HALFBYTE_RETURN_IF_ERROR(check_matrix("y", y, spec.y_dtype, rows, spec.hidden_size, device()));
  if (shared.kind == SharedExpert::Kind::kNone) return {};
  HALFBYTE_RETURN_IF_ERROR(
      check_matrix("shared expert", shared.rows, DType::kF32, rows, spec.hidden_size, device()));
  if (shared.kind == SharedExpert::Kind::kSharded && plan.dispatch.dispatcher == "all_to_all") {
    return {StatusCode::kInvalidArgument,
            "all-to-all takes a replicated shared expert, got a sharded one"};
  }
  return {};
}

Status MoeLayer::Impl::run_experts(const DispatchedTokens& received) {
  if (received.num_routes == 0) return {};
  return backend->run(plan.experts, *prepared, received, expert_output(), expert_workspace(),
                      seam_stream());
}

void MoeLayer::Impl::count(const DispatchedTokens& received,
                           std::span<const std::int64_t> tokens_per_rank) {
  if (!on_host()) return;
  const ExpertShard& shard = plan.experts.shard;
  const std::int64_t bytes_per_expert =
      shard.num_local_experts == 0 ? 0 : plan.experts.prepared_bytes / shard.num_local_experts;
  std::int64_t num_touched = 0;
  for (std::int64_t e = 0; e < shard.num_local_experts; ++e) {
    const std::int32_t routes = received.expert_count[e];
    if (routes == 0) continue;
    counters->tokens_per_expert[static_cast<std::size_t>(shard.first_expert + e)].add(routes);
    ++num_touched;
  }
  counters->num_steps.add(1);
  counters->experts_touched.add(num_touched);
  counters->expert_bytes_read.add(num_touched * bytes_per_expert);
  counters->dropped_routes.add(dispatcher->last_dropped_routes() -
                               (num_tokens - num_valid) * spec.top_k);
  if (plan.dispatch.dp_size > 1) {
    counters->dispatch_bytes.add(received.num_rows * plan.dispatch.dispatch_bytes_per_token);
  }
  const std::int64_t valid_rows = tokens_per_rank.empty()
                                      ? num_tokens
                                      : std::reduce(tokens_per_rank.begin(), tokens_per_rank.end());
  counters->padded_rows.add(std::max<std::int64_t>(0, received.num_rows - valid_rows));
}

// On the host: ids in which padding has no route. Its rows are then read by nobody.
Routing MoeLayer::Impl::without_padding(const Routing& routing, std::int64_t rows) {
  num_valid = rows;
  if (!on_host() || routing.num_valid_tokens == nullptr) return routing;
  num_valid = std::clamp<std::int64_t>(*routing.num_valid_tokens, 0, rows);
  auto* idx = workspace->view().at<std::int32_t>(plan.valid_idx_offset);
  const auto valid_ids = static_cast<std::size_t>(num_valid * spec.top_k);
  std::copy_n(routing.topk_idx.begin(), valid_ids, idx);
  std::fill_n(idx + valid_ids, routing.topk_idx.size() - valid_ids, -1);
  return {{idx, routing.topk_idx.size()}, routing.topk_weights};
}

Status MoeLayer::Impl::start(ConstMatrixView x,
                             const Routing& routing,
                             std::span<const std::int64_t> tokens_per_rank) {
  DispatchInput input;
  input.x = x;
  input.routing = without_padding(routing, x.rows);
  input.s1 = scales.s1;
  input.tokens_per_rank = tokens_per_rank;
  HALFBYTE_ASSIGN_OR_RETURN(
      tokens, dispatcher->dispatch(plan.dispatch, input, dispatch_workspace(), seam_stream()));
  num_tokens = x.rows;
  if (Status status = run_experts(tokens); !status.ok()) {
    failure = status.clone();
    return status;
  }
  count(tokens, tokens_per_rank);
  in_flight = true;
  return {};
}

Status MoeLayer::start(ConstMatrixView x,
                       const Routing& routing,
                       std::span<const std::int64_t> tokens_per_rank) {
  HALFBYTE_RETURN_IF_ERROR(impl_->check_can_step());
  HALFBYTE_RETURN_IF_ERROR(impl_->check_input(x, routing, tokens_per_rank));
  HALFBYTE_RETURN_IF_ERROR(impl_->check_first_step());
  return impl_->on_device([&] { return impl_->start(x, routing, tokens_per_rank); });
}

Status MoeLayer::Impl::finish(const SharedExpert& shared, const MatrixView& y) {
  in_flight = false;
  Status status = dispatcher->combine(plan.dispatch, tokens, expert_output(), shared, y,
                                      dispatch_workspace(), seam_stream());
  if (!status.ok()) {
    failure = status.clone();
    return status;
  }
  has_run = true;
  for (std::int64_t row = num_valid; row < num_tokens; ++row) {
    std::memset(row_pointer(y, row), 0, static_cast<std::size_t>(y.cols * dtype_bytes(y.dtype)));
  }
  return {};
}

Status MoeLayer::finish(const SharedExpert& shared, MatrixView y) {
  if (!impl_->in_flight) {
    return {StatusCode::kInvalidArgument, "finish() without start(): no step is in flight"};
  }
  HALFBYTE_RETURN_IF_ERROR(impl_->check_output(impl_->num_tokens, shared, y));
  return impl_->on_device([&] { return impl_->finish(shared, y); });
}

Status MoeLayer::run(ConstMatrixView x,
                     const Routing& routing,
                     const SharedExpert& shared,
                     MatrixView y,
                     std::span<const std::int64_t> tokens_per_rank) {
  HALFBYTE_RETURN_IF_ERROR(impl_->check_can_step());
  HALFBYTE_RETURN_IF_ERROR(impl_->check_output(x.rows, shared, y));
  HALFBYTE_RETURN_IF_ERROR(start(x, routing, tokens_per_rank));
  return finish(shared, y);
}

// One expert's rows in pieces of at most the capacity, so that buckets of any height fit the plan.
Status MoeLayer::Impl::run_bucket(ConstMatrixView x, std::int64_t local_expert_idx, MatrixView y) {
  const auto expert = static_cast<std::size_t>(local_expert_idx);
  for (std::int64_t begin = 0; begin < x.rows; begin += plan.experts.capacity_tokens) {
    const std::int64_t rows = std::min(plan.experts.capacity_tokens, x.rows - begin);
    std::fill(bucket_count.begin(), bucket_count.end(), 0);
    bucket_count[expert] = static_cast<std::int32_t>(rows);
    for (std::size_t e = 0; e < bucket_offset.size(); ++e)
      bucket_offset[e] = e > expert ? rows : 0;

    DispatchedTokens bucket;
    bucket.x = x;
    bucket.x.data = row_pointer(x, begin);
    bucket.x.rows = rows;
    bucket.num_rows = rows;
    bucket.expert_offset = bucket_offset.data();
    bucket.expert_count = bucket_count.data();
    bucket.num_routes = rows;
    HALFBYTE_RETURN_IF_ERROR(run_experts(bucket));
    MatrixView piece = y;
    piece.data = row_pointer(y, begin);
    HALFBYTE_RETURN_IF_ERROR(copy_rows(expert_output().rows, rows, piece));
  }
  return {};
}

Status MoeLayer::run_bucketed(ConstMatrixView x,
                              std::span<const std::int32_t> counts,
                              MatrixView y) {
  Impl& impl = *impl_;
  HALFBYTE_RETURN_IF_ERROR(impl.check_can_step());
  if (!impl.on_host()) {
    return {StatusCode::kUnsupported, "run_bucketed() runs on the host alone"};
  }
  const std::int64_t num_local = num_local_experts();
  if (counts.size() != static_cast<std::size_t>(num_local)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("counts lists {} experts, want {}", counts.size(), num_local)};
  }
  if (num_local == 0) return {};
  HALFBYTE_RETURN_IF_ERROR(check_matrix("x", x, impl.spec.x_dtype,
                                        std::max<std::int64_t>(x.rows, 0), impl.spec.hidden_size));
  HALFBYTE_RETURN_IF_ERROR(check_matrix("y", y, impl.spec.y_dtype, x.rows, impl.spec.hidden_size));
  const std::int64_t rows_per_expert = x.rows / num_local;
  if (x.rows % num_local != 0 || std::any_of(counts.begin(), counts.end(), [&](std::int32_t count) {
        return count < 0 || count > rows_per_expert;
      })) {
    return {StatusCode::kInvalidArgument,
            fmt::format("x has {} rows for {} experts; want a multiple, and counts from 0 to it",
                        x.rows, num_local)};
  }
  for (std::int64_t e = 0; e < num_local; ++e) {
    const std::int32_t count = counts[static_cast<std::size_t>(e)];
    if (count == 0) continue;
    ConstMatrixView x_bucket = x;
    x_bucket.data = row_pointer(x, e * rows_per_expert);
    x_bucket.rows = count;
    MatrixView y_bucket = y;
    y_bucket.data = row_pointer(y, e * rows_per_expert);
    HALFBYTE_RETURN_IF_ERROR(impl.run_bucket(x_bucket, e, y_bucket));
  }
  return {};
}

}  // namespace halfbyte
