// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace halfbyte {
namespace {

Status file_error(const std::string& path, std::string_view reason) {
  return Status(StatusCode::kNotFound, fmt::format("{}: {}", path, reason));
}

Status system_error(const std::string& path) {
  return file_error(path, std::system_category().message(errno));
}

/// Maps what `fd` has open; the mapping outlives the descriptor.
Result<std::span<const std::uint8_t>> map_descriptor(int fd, const std::string& path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return system_error(path);
  if (!S_ISREG(info.st_mode)) return file_error(path, "not a regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return std::span<const std::uint8_t>();
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return system_error(path);
  return std::span<const std::uint8_t>(static_cast<const std::uint8_t*>(data), size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a pipe in place of a file is an error, not a wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path);
  Result<std::span<const std::uint8_t>> bytes = map_descriptor(fd, path);
  close(fd);
  if (!bytes.ok()) return bytes.take_status();
  return MappedFile(bytes->data(), bytes->size());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::drop(std::size_t offset, std::size_t length) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + length) / page * page;
  if (begin >= end || end > size_) return;
  madvise(const_cast<std::uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace halfbyte
