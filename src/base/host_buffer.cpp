// SPDX-License-Identifier: Apache-2.0
#include "base/host_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

namespace halfbyte {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

Result<HostBuffer> HostBuffer::allocate(std::size_t bytes) {
  if (bytes == 0) return HostBuffer();
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Status(StatusCode::kOutOfMemory, fmt::format("host memory: {} bytes wanted", bytes));
  }
  // Advice only: a system without huge pages runs the same code, more slowly.
  if (bytes >= kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
  return HostBuffer(static_cast<std::byte*>(data), bytes);
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
