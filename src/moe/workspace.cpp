// SPDX-License-Identifier: Apache-2.0
#include "moe/workspace.h"

#include <fmt/format.h>

#include "moe/device_limits.h"

namespace halfbyte {

Status MoeWorkspace::reserve(std::size_t bytes, const Device& device) {
  if (device_.has_value() && *device_ != device) {
    return {StatusCode::kInvalidArgument,
            fmt::format("a workspace on {} cannot serve a layer on {}: give each device its own",
                        device_name(*device_), device_name(device))};
  }
  device_ = device;
  if (bytes <= view_.bytes) return {};
  if (device.kind == DeviceKind::kHost) {
    HALFBYTE_ASSIGN_OR_RETURN(host_, HostBuffer::allocate(bytes));
    view_ = {host_.data(), host_.size()};
  } else {
    HALFBYTE_ASSIGN_OR_RETURN(device_memory_, device::DeviceBuffer::allocate(bytes));
    view_ = {device_memory_.data(), device_memory_.size()};
  }
  return {};
}

}  // namespace halfbyte
