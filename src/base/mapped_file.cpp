// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace halfbyte {
namespace {

Status file_error(const std::string& path) {
  return Status(StatusCode::kNotFound, fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (errno == 0 || !S_ISREG(info.st_mode)) errno = EISDIR;
    Status status = file_error(path);
    close(fd);
    return status;
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return MappedFile();
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  Status status = data == MAP_FAILED ? file_error(path) : Status();
  close(fd);
  if (!status.ok()) return status;
  return MappedFile(static_cast<const std::uint8_t*>(data), size);
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
