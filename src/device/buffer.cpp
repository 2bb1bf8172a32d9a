// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::device {

Result<PinnedBuffer> PinnedBuffer::allocate(std::size_t bytes) {
  if (bytes == 0) return PinnedBuffer();
  void* data = nullptr;
  HALFBYTE_RETURN_IF_ERROR(cuda_status(cudaMallocHost(&data, bytes),
                                       fmt::format("pinned host memory: {} bytes wanted", bytes)));
  return PinnedBuffer(static_cast<std::byte*>(data), bytes);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<DeviceBuffer> DeviceBuffer::allocate(std::size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return cuda_status(
        error, fmt::format("device memory: {} bytes wanted, {} of {} free", bytes, free, total));
  }
  return DeviceBuffer(static_cast<std::byte*>(data), bytes);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Status DeviceBuffer::upload(std::span<const std::byte> host,
                            std::size_t offset_bytes,
                            const Stream& stream) const {
  return cuda_status(cudaMemcpyAsync(data_ + offset_bytes, host.data(), host.size(),
                                     cudaMemcpyHostToDevice, stream.handle()),
                     "copy to the device");
}

Status DeviceBuffer::download(std::span<std::byte> host,
                              std::size_t offset_bytes,
                              const Stream& stream) const {
  return cuda_status(cudaMemcpyAsync(host.data(), data_ + offset_bytes, host.size(),
                                     cudaMemcpyDeviceToHost, stream.handle()),
                     "copy from the device");
}

Status DeviceBuffer::fill(std::byte value, const Stream& stream) const {
  return fill_bytes(data_, value, size_, stream);
}

Status fill_bytes(void* device_memory,
                  std::byte value,
                  std::size_t num_bytes,
                  const Stream& stream) {
  return cuda_status(
      cudaMemsetAsync(device_memory, static_cast<int>(value), num_bytes, stream.handle()),
      "fill device memory");
}

}  // namespace halfbyte::device
