// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_INDEX_H_
#define HALFBYTE_CHECKPOINT_INDEX_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// model.safetensors.index.json: which file should hold which tensor.
struct SafetensorsIndex {
  std::vector<std::string> files;                             // in order of first mention
  std::vector<std::pair<std::string, std::int32_t>> tensors;  // name -> index into files
};

/// kCorruptData: not JSON, no weight_map, an entry that is not a string, a tensor listed twice, or
/// a file name with a directory part. Never trusts a name to stay inside the directory.
Result<SafetensorsIndex> read_safetensors_index(std::string_view text);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_INDEX_H_
