// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_WORKSPACE_H_
#define HALFBYTE_MOE_WORKSPACE_H_

#include <optional>

#include "base/host_buffer.h"
#include "base/workspace_layout.h"
#include "device/buffer.h"
#include "halfbyte/moe.h"

namespace halfbyte {

/// Scratch that layers share, on the device of the first, as large as the largest asked for. Thread
/// rule: one rank's thread.
class MoeWorkspace {
 public:
  /// Makes room for `bytes` on `device`, which is current; moves the memory when it grows, so no
  /// layer may be between start() and finish(). kOutOfMemory names the size; kInvalidArgument: its
  /// layers live on another device.
  Status reserve(std::size_t bytes, const Device& device);
  Workspace view() const { return view_; }
  /// The part of a plan that starts at `offset`.
  Workspace part(std::size_t offset, std::size_t bytes) const {
    return {view_.data + offset, bytes};
  }

 private:
  std::optional<Device> device_;
  HostBuffer host_;
  device::DeviceBuffer device_memory_;
  Workspace view_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_WORKSPACE_H_
