// SPDX-License-Identifier: Apache-2.0
//
// Whatever the text, an accepted index names plain files only and every tensor has one.
#include <cstdlib>

#include "checkpoint/index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = halfbyte::read_safetensors_index({reinterpret_cast<const char*>(data), size});
  if (!index.ok()) return 0;
  for (const std::string& file : index->files) {
    if (file.find('/') != std::string::npos || file.find("..") != std::string::npos) std::abort();
  }
  for (const auto& [name, file] : index->tensors) {
    if (file < 0 || static_cast<std::size_t>(file) >= index->files.size()) std::abort();
  }
  return 0;
}
