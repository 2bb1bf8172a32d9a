// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstddef>
#include <utility>

#include "bench/ceiling_loops.h"

namespace halfbyte::tool {
namespace {

// The barrier makes each product a computation of its own: the factors may have changed.
void multiply_add(__m512i& sum, __m512i& a, __m512i& b) {
  asm volatile("" : "+v"(a), "+v"(b));
  sum = _mm512_dpbusd_epi32(sum, a, b);
}

std::int64_t first_lane(const __m512i& v) {
  std::int64_t lanes[sizeof(v) / sizeof(std::int64_t)];
  _mm512_storeu_si512(reinterpret_cast<__m512i*>(lanes), v);
  return lanes[0];
}

// One register for each index: an array under a loop would live in memory.
template <std::size_t... kIdx>
std::int64_t multiply(std::int64_t steps, std::index_sequence<kIdx...>) {
  __m512i a = _mm512_set1_epi8(1);
  __m512i b = _mm512_set1_epi8(2);
  __m512i sums[sizeof...(kIdx)] = {};
  for (std::int64_t step = 0; step < steps; ++step)
    (multiply_add(sums[kIdx], a, b), ...);
  return (first_lane(sums[kIdx]) ^ ...);
}

}  // namespace

std::int64_t multiply_avx512_vnni(std::int64_t steps) {
  return multiply(steps, std::make_index_sequence<24>());
}

}  // namespace halfbyte::tool
