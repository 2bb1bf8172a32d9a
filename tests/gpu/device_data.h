// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_GPU_DEVICE_DATA_H_
#define HALFBYTE_TESTS_GPU_DEVICE_DATA_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device/buffer.h"
#include "device/properties.h"
#include "device/stream.h"

namespace halfbyte::test {

/// Skips the test where there is no Hopper GPU.
#define HALFBYTE_NEED_HOPPER()                                                                     \
  if (device::num_devices() == 0 || device::read_properties(0).value().compute_capability != 90) { \
    GTEST_SKIP() << "needs a GPU of compute capability 9.0";                                       \
  }

/// Values in device memory. Every failure ends the test.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(std::size_t count, const device::Stream& stream) : count_(count), stream_(&stream) {
    Result<device::DeviceBuffer> buffer = device::DeviceBuffer::allocate(count * sizeof(T));
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    buffer_ = std::move(buffer).value();
  }
  DeviceArray(const std::vector<T>& values, const device::Stream& stream)
      : DeviceArray(values.size(), stream) {
    if (values.empty()) return;
    EXPECT_TRUE(buffer_.upload(std::as_bytes(std::span(values)), 0, stream).ok());
    EXPECT_TRUE(stream.synchronize().ok());
  }

  /// Replaces the first values, and waits.
  void upload(const std::vector<T>& values) const {
    ASSERT_LE(values.size(), count_);
    if (values.empty()) return;
    EXPECT_TRUE(buffer_.upload(std::as_bytes(std::span(values)), 0, *stream_).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
  }

  T* data() const { return buffer_.template as<T>(); }
  std::size_t size() const { return count_; }

  void poison(int byte) const {
    if (count_ > 0) {
      EXPECT_TRUE(buffer_.fill(static_cast<std::byte>(byte), *stream_).ok());
    }
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    if (count_ == 0) return values;
    EXPECT_TRUE(buffer_.download(std::as_writable_bytes(std::span(values)), 0, *stream_).ok());
    const Status status = stream_->synchronize();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return values;
  }

 private:
  device::DeviceBuffer buffer_;
  std::size_t count_ = 0;
  const device::Stream* stream_ = nullptr;
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_DEVICE_DATA_H_
