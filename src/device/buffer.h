// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_BUFFER_H_
#define HALFBYTE_DEVICE_BUFFER_H_

#include <cstddef>
#include <span>

#include "device/stream.h"
#include "halfbyte/result.h"

namespace halfbyte::device {

/// Owns host memory that the device copies from and to at full speed. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// kOutOfMemory names the size. A size of 0 is a null buffer.
  static Result<PinnedBuffer> allocate(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  PinnedBuffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Owns device memory, 256-byte aligned, not cleared. Move-only.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// kOutOfMemory names the size and what is free. A size of 0 is a null buffer.
  static Result<DeviceBuffer> allocate(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(data_ + offset_bytes);
  }

  /// Copies in stream order. The host memory must stay valid until the stream has passed.
  Status upload(std::span<const std::byte> host,
                std::size_t offset_bytes,
                const Stream& stream) const;
  Status download(std::span<std::byte> host, std::size_t offset_bytes, const Stream& stream) const;
  /// Sets every byte, in stream order.
  Status fill(std::byte value, const Stream& stream) const;

 private:
  DeviceBuffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Sets bytes of device memory, in stream order.
Status fill_bytes(void* device_memory,
                  std::byte value,
                  std::size_t num_bytes,
                  const Stream& stream);

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_BUFFER_H_
