// SPDX-License-Identifier: Apache-2.0
//
// What a layer on a CUDA device has beside the steps that every layer has: streams that are being
// captured, and one-time work. On the host all of it is nothing.
#include <fmt/format.h>

#include <array>

#include "device/buffer.h"
#include "moe/device_limits.h"
#include "moe/layer_impl.h"
#include "moe/router.h"

namespace halfbyte {

Status MoeLayer::Impl::refuse_capture(std::string_view call) const {
  if (on_host()) return {};
  const device::CurrentDevice current(device().index);
  HALFBYTE_RETURN_IF_ERROR(current.status());
  HALFBYTE_ASSIGN_OR_RETURN(const bool capturing, stream.is_capturing());
  if (!capturing) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{} while the stream is being captured: a graph cannot hold it; call it "
                      "before or after the capture, which goes on",
                      call)};
}

// nvfp4-moe 12.2: the driver loads a kernel when it is first launched, which a capture may not do.
Status MoeLayer::Impl::check_first_step() const {
  return has_run ? Status() : refuse_capture("the layer's first step");
}

// Two steps without a route, of one token and of as many as the plan holds: every launch of
// dispatch and combine happens once. Their rows of y are written over the experts' output.
Status MoeLayer::Impl::warm_up_device() {
  if (on_host() || in_flight) return {};
  const std::int64_t capacity = plan.dispatch.max_tokens_per_rank;
  const auto num_ids = static_cast<std::size_t>(capacity * spec.top_k);
  HALFBYTE_ASSIGN_OR_RETURN(const auto ids,
                            device::DeviceBuffer::allocate(num_ids * sizeof(std::int32_t)));
  HALFBYTE_RETURN_IF_ERROR(ids.fill(std::byte{0xFF}, stream));
  void* scratch = expert_output().rows.data;
  for (const std::int64_t num_rows : std::array{std::int64_t{1}, capacity}) {
    const auto count = static_cast<std::size_t>(num_rows * spec.top_k);
    DispatchInput input;
    input.x = {scratch, spec.x_dtype, num_rows, spec.hidden_size, device()};
    input.routing = {{ids.as<std::int32_t>(), count}, {ids.as<float>(), count}};
    HALFBYTE_ASSIGN_OR_RETURN(
        const DispatchedTokens received,
        dispatcher->dispatch(plan.dispatch, input, dispatch_workspace(), &stream));
    HALFBYTE_RETURN_IF_ERROR(run_experts(received));
    HALFBYTE_RETURN_IF_ERROR(
        dispatcher->combine(plan.dispatch, received, expert_output(), {},
                            {scratch, spec.y_dtype, num_rows, spec.hidden_size, device()},
                            dispatch_workspace(), &stream));
  }
  HALFBYTE_RETURN_IF_ERROR(warm_up_router());
  return stream.synchronize();
}

// Whatever the logits are. A router that the kernel has no room for says so when it is asked.
Status MoeLayer::Impl::warm_up_router() {
  const auto num_experts = static_cast<std::size_t>(spec.num_experts);
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  HALFBYTE_ASSIGN_OR_RETURN(const auto buffer,
                            device::DeviceBuffer::allocate((num_experts + 2 * top_k) * 4));
  HALFBYTE_RETURN_IF_ERROR(buffer.fill(std::byte{0}, stream));
  const Status status = route_on_device({buffer.data(), DType::kF32, 1, spec.num_experts, device()},
                                        {}, {buffer.as<std::int32_t>(num_experts * 4), top_k},
                                        {buffer.as<float>((num_experts + top_k) * 4), top_k});
  if (status.code() != StatusCode::kUnsupported) HALFBYTE_RETURN_IF_ERROR(status.clone());
  return stream.synchronize();
}

Status MoeLayer::Impl::route_on_device(ConstMatrixView logits,
                                       std::span<const float> bias,
                                       std::span<std::int32_t> topk_idx,
                                       std::span<float> topk_weights) {
  if (logits.device != device()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("router logits are on {}, want host memory or the layer's device, {}",
                        device_name(logits.device), device_name(device()))};
  }
  return on_device([&] {
    return halfbyte::route_on_device(spec.router, logits, bias, spec.top_k, topk_idx, topk_weights,
                                     stream.handle());
  });
}

}  // namespace halfbyte
