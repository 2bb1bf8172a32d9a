// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstddef>
#include <utility>

#include "bench/ceiling_loops.h"

namespace halfbyte::tool {
namespace {

// The barrier makes each product a computation of its own: the factors may have changed.
void multiply_add(__m256i& sum, __m256i& a, __m256i& b) {
  asm volatile("" : "+x"(a), "+x"(b));
  sum = _mm256_dpbusd_avx_epi32(sum, a, b);
}

std::int64_t first_lane(const __m256i& v) {
  std::int64_t lanes[sizeof(v) / sizeof(std::int64_t)];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), v);
  return lanes[0];
}

// One register for each index: an array under a loop would live in memory.
template <std::size_t... kIdx>
std::int64_t multiply(std::int64_t steps, std::index_sequence<kIdx...>) {
  __m256i a = _mm256_set1_epi8(1);
  __m256i b = _mm256_set1_epi8(2);
  __m256i sums[sizeof...(kIdx)] = {};
  for (std::int64_t step = 0; step < steps; ++step)
    (multiply_add(sums[kIdx], a, b), ...);
  return (first_lane(sums[kIdx]) ^ ...);
}

}  // namespace

std::int64_t multiply_avx_vnni(std::int64_t steps) {
  return multiply(steps, std::make_index_sequence<12>());
}

}  // namespace halfbyte::tool
