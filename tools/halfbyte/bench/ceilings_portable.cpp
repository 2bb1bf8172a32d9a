// SPDX-License-Identifier: Apache-2.0
#include "bench/ceiling_loops.h"

namespace halfbyte::tool {

std::int64_t read_portable(const std::int64_t* data, std::int64_t bytes) {
  std::int64_t sums[8] = {};
  for (std::int64_t i = 0; i < bytes / 8; i += 8) {
    for (int j = 0; j < 8; ++j)
      sums[j] ^= data[i + j];
  }
  std::int64_t all = 0;
  for (const std::int64_t sum : sums)
    all ^= sum;
  return all;
}

std::int64_t multiply_portable(std::int64_t steps) {
  std::int16_t a[64], b[64];  // int8 values, widened: what plain C++ multiplies fastest
  std::int32_t sums[32] = {};
  for (int i = 0; i < 64; ++i)
    a[i] = b[i] = static_cast<std::int16_t>(i);
  for (std::int64_t step = 0; step < steps; ++step) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");  // the factors may have changed
    for (int i = 0; i < 32; ++i)
      sums[i] = (sums[i] & 0xFFFFFF) + a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  }
  std::int64_t all = 0;
  for (const std::int32_t sum : sums)
    all += sum;
  return all;
}

}  // namespace halfbyte::tool
