// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_SAFETENSORS_H_
#define HALFBYTE_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/dtype.h"
#include "halfbyte/result.h"

namespace halfbyte {

/// One entry of a safetensors header, checked. Offsets count from the start of the file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Reads and checks the header of one file (checkpoints.md section 6: every reason for refusal
/// there). kCorruptData without the file's name: the caller adds it. Never reads outside `file`.
Result<std::vector<SafetensorsEntry>> read_safetensors_header(std::span<const std::uint8_t> file);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_SAFETENSORS_H_
