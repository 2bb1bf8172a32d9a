// SPDX-License-Identifier: Apache-2.0
#include "base/workspace_layout.h"

#include <fmt/format.h>

namespace halfbyte {

std::size_t WorkspaceLayout::add(std::string_view name, std::size_t bytes, std::size_t alignment) {
  const std::size_t offset = (end_ + alignment - 1) & ~(alignment - 1);
  entries_.push_back({std::string(name), offset, bytes});
  end_ = offset + bytes;
  return offset;
}

std::string WorkspaceLayout::to_string() const {
  std::string text;
  for (const Entry& entry : entries_) {
    text += fmt::format("{:>14} {:>14}  {}\n", entry.offset, entry.bytes, entry.name);
  }
  return text + fmt::format("{:>14} {:>14}  total\n", "", end_);
}

}  // namespace halfbyte
