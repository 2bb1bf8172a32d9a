// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_WORKSPACE_LAYOUT_H_
#define HALFBYTE_BASE_WORKSPACE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

/// Where each scratch buffer lies in one allocation. Size, pointers and the printed map come from
/// this one table; buffers never overlap.
class WorkspaceLayout {
 public:
  struct Entry {
    std::string name;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  /// Places `bytes` at the next multiple of `alignment` (a power of two) and returns the offset.
  std::size_t add(std::string_view name, std::size_t bytes, std::size_t alignment = 64);
  std::size_t total_bytes() const { return end_; }
  const std::vector<Entry>& entries() const { return entries_; }
  /// One line per buffer: offset, bytes, name.
  std::string to_string() const;

 private:
  std::vector<Entry> entries_;
  std::size_t end_ = 0;
};

/// The memory that a layout describes; a view.
struct Workspace {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(data + offset);
  }
};

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_WORKSPACE_LAYOUT_H_
