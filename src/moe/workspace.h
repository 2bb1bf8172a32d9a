// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_WORKSPACE_H_
#define HALFBYTE_MOE_WORKSPACE_H_

#include "base/host_buffer.h"
#include "base/workspace_layout.h"
#include "halfbyte/moe.h"

namespace halfbyte {

/// Host scratch that layers share, as large as the largest asked for. Thread rule: one rank's
/// thread.
class MoeWorkspace {
 public:
  /// Makes room for `bytes`; moves the memory when it grows, so no layer may be between start() and
  /// finish(). kOutOfMemory names the size.
  Status reserve(std::size_t bytes) {
    if (bytes <= buffer_.size()) return {};
    HALFBYTE_ASSIGN_OR_RETURN(buffer_, HostBuffer::allocate(bytes));
    return {};
  }
  Workspace view() const { return {buffer_.data(), buffer_.size()}; }
  /// The part of a plan that starts at `offset`.
  Workspace part(std::size_t offset, std::size_t bytes) const {
    return {buffer_.data() + offset, bytes};
  }

 private:
  HostBuffer buffer_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_WORKSPACE_H_
