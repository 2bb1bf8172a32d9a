// SPDX-License-Identifier: Apache-2.0
//
// What a layer on a CUDA device has beside the steps that every layer has: streams that are being
// captured, and one-time work. On the host all of it is nothing.
#include <fmt/format.h>

#include <array>

#include "device/buffer.h"
#include "moe/layer_impl.h"

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
  return stream.synchronize();
}

}  // namespace halfbyte
