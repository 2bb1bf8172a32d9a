// SPDX-License-Identifier: Apache-2.0
//
// Small safetensors files for tests. A checkpoint is a TensorSet (a map by name, so that a test can
// change or erase one tensor) and a config:
//
//   TempDirectory dir;
//   TensorSet tensors;
//   put(tensors, f32_tensor("model.norm.weight", {2}, {1.0F, 2.0F}));
//   write_safetensors(dir / "model.safetensors", tensors);
//   write_text(dir / "config.json", "{...}");
#ifndef HALFBYTE_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
#define HALFBYTE_TESTS_SUPPORT_SAFETENSORS_WRITER_H_

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/bf16.h"
#include "halfbyte/dtype.h"

namespace halfbyte::test {

struct TestTensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};
using TensorSet = std::map<std::string, TestTensor>;

/// Adds a tensor, or replaces the one of its name.
inline void put(TensorSet& tensors, TestTensor tensor) {
  std::string name = tensor.name;
  tensors.insert_or_assign(std::move(name), std::move(tensor));
}

inline TestTensor byte_tensor(std::string name,
                              DType dtype,
                              std::vector<std::int64_t> shape,
                              std::vector<std::uint8_t> bytes) {
  return {std::move(name), dtype, std::move(shape), std::move(bytes)};
}

inline TestTensor f32_tensor(std::string name,
                             std::vector<std::int64_t> shape,
                             const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {std::move(name), DType::kF32, std::move(shape), std::move(bytes)};
}

inline TestTensor bf16_tensor(std::string name,
                              std::vector<std::int64_t> shape,
                              const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values) {
    const std::uint16_t bits = f32_to_bf16(value);
    bytes.push_back(static_cast<std::uint8_t>(bits & 0xFFU));
    bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  return {std::move(name), DType::kBf16, std::move(shape), std::move(bytes)};
}

/// A file from a header as it stands and data: for headers that are wrong on purpose.
inline std::vector<std::uint8_t> safetensors_file(const std::string& header,
                                                  const std::vector<std::uint8_t>& data = {}) {
  std::vector<std::uint8_t> file;
  for (std::size_t i = 0; i < 8; ++i) {
    file.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i) & 0xFFU));
  }
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

/// A well-formed file; tensors lie in the order of their names.
inline std::vector<std::uint8_t> safetensors_bytes(const TensorSet& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::vector<std::uint8_t> data;
  for (const auto& [name, tensor] : tensors) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), data.size(),
                          data.size() + tensor.bytes.size());
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return safetensors_file(header + "}", data);
}

inline void write_bytes(const std::filesystem::path& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline void write_safetensors(const std::filesystem::path& path, const TensorSet& tensors) {
  write_bytes(path, safetensors_bytes(tensors));
}

/// A directory of its own, removed at the end.
class TempDirectory {
 public:
  TempDirectory() {
    static std::atomic<int> counter = 0;
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("halfbyte-test-{}-{}", getpid(), counter++);
    std::filesystem::create_directories(path_);
  }
  ~TempDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  std::string string() const { return path_.string(); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
