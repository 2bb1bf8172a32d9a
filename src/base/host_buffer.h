// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_HOST_BUFFER_H_
#define HALFBYTE_BASE_HOST_BUFFER_H_

#include <cstddef>
#include <span>

#include "halfbyte/result.h"

namespace halfbyte {

/// Owns zero-filled, 64-byte aligned host memory, mapped page by page so that it returns to the
/// system when freed; 2 MiB and more start on a huge page and ask for them. Move-only.
class HostBuffer {
 public:
  HostBuffer() = default;
  /// kOutOfMemory names the size. A size of 0 is a null buffer.
  static Result<HostBuffer> allocate(std::size_t bytes);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }
  /// The memory as T[size() / sizeof(T)].
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  HostBuffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_HOST_BUFFER_H_
