// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_MAPPED_FILE_H_
#define HALFBYTE_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "halfbyte/result.h"

namespace halfbyte {

/// A whole file, mapped read-only. Move-only. Reading is thread-safe.
class MappedFile {
 public:
  MappedFile() = default;
  /// kNotFound with the path and the system's reason. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }
  /// Tells the system that these bytes were read and will not be read again soon.
  void drop(std::size_t offset, std::size_t length) const;

 private:
  MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_MAPPED_FILE_H_
