// SPDX-License-Identifier: Apache-2.0
#include "base/host_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace halfbyte {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::byte* map(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// From the start of a huge page on: addresses are reserved with room to spare, and the room is
// given back. The advice is only that: a system without huge pages runs the same code, more slowly.
std::byte* map_aligned(std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePageBytes) return nullptr;
  const std::size_t length = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::byte* reserved = map(length + kHugePageBytes);
  if (reserved == nullptr) return nullptr;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(reserved) % kHugePageBytes;
  const std::size_t before = (kHugePageBytes - past) % kHugePageBytes;
  std::byte* data = reserved + before;
  if (before != 0) munmap(reserved, before);
  munmap(data + length, kHugePageBytes - before);
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

}  // namespace

Result<HostBuffer> HostBuffer::allocate(std::size_t bytes) {
  if (bytes == 0) return HostBuffer();
  std::byte* data = bytes < kHugePageBytes ? map(bytes) : map_aligned(bytes);
  if (data == nullptr) {
    return Status(StatusCode::kOutOfMemory, fmt::format("host memory: {} bytes wanted", bytes));
  }
  return HostBuffer(data, bytes);
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace halfbyte
