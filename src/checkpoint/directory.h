// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a checkpoint directory: names, shapes, bytes. What they mean is weights/.
#ifndef HALFBYTE_CHECKPOINT_DIRECTORY_H_
#define HALFBYTE_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "halfbyte/dtype.h"
#include "halfbyte/result.h"

namespace halfbyte {

struct SafetensorsIndex;
using FileEntries = std::vector<SafetensorsEntry>;

/// One tensor as its file has it. `name`, `shape` and `bytes` point into the checkpoint.
struct RawTensor {
  std::string_view name;
  DType dtype = DType::kU8;
  std::span<const std::int64_t> shape;
  std::span<const std::uint8_t> bytes;  // possibly unaligned for dtype
  std::int32_t file_idx = 0;
};

/// Every tensor that the directory's safetensors files hold, mapped, sorted by name. Immutable
/// after open(); any thread may read.
class RawTensors {
 public:
  /// Applies the rules of checkpoints.md section 6: index, shards, header checks, duplicates.
  static Result<std::unique_ptr<RawTensors>> open(const std::string& directory,
                                                  bool ignore_index,
                                                  NoticeSink& notices);

  std::span<const RawTensor> tensors() const { return tensors_; }
  /// Null when absent.
  const RawTensor* find(std::string_view name) const;
  std::string_view file_name(const RawTensor& tensor) const {
    return files_[static_cast<std::size_t>(tensor.file_idx)].name;
  }
  std::uint64_t total_bytes() const;
  /// How many files were read.
  std::size_t num_files() const { return files_.size(); }
  /// Files of the directory that the index does not name; nothing of them was read.
  const std::vector<std::string>& unread_files() const { return unread_files_; }
  /// The names of the tensors in one of them; empty when it cannot be read.
  std::vector<std::string> tensor_names_of_unread(const std::string& file) const;
  /// Lets the system forget pages that were read.
  void drop(const RawTensor& tensor) const;

 private:
  struct File {
    std::string name;
    MappedFile map;
  };
  Status map_files(const std::vector<std::string>& names);
  Result<std::vector<FileEntries>> read_headers() const;
  void reserve(const std::vector<FileEntries>& files);
  Status add_headers();
  Status sort_and_check_duplicates();
  Status compare_with_index(const SafetensorsIndex& index,
                            std::string_view index_name,
                            NoticeSink& notices) const;

  std::string directory_;
  std::vector<std::string> unread_files_;
  std::vector<File> files_;
  std::vector<RawTensor> tensors_;
  std::vector<std::int64_t> shapes_;  // arena
  std::string names_;                 // arena
};

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_DIRECTORY_H_
