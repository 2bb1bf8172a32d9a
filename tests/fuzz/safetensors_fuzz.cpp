// SPDX-License-Identifier: Apache-2.0
//
// Whatever the bytes, the header reader neither reads outside them nor hands out a range outside.
#include <cstdlib>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto entries = halfbyte::read_safetensors_header({data, size});
  if (!entries.ok()) return 0;
  for (const halfbyte::SafetensorsEntry& entry : *entries) {
    if (entry.begin < 8 || entry.begin > entry.end || entry.end > size) std::abort();
  }
  return 0;
}
