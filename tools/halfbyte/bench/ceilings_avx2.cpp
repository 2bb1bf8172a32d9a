// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstddef>
#include <utility>

#include "bench/ceiling_loops.h"

namespace halfbyte::tool {
namespace {

constexpr int kPrefetchBytes = 2304;

std::int64_t xor_lanes(__m256i v) {
  return _mm256_extract_epi64(v, 0) ^ _mm256_extract_epi64(v, 1) ^ _mm256_extract_epi64(v, 2) ^
         _mm256_extract_epi64(v, 3);
}

// kStreams places of the memory at once: some machines then keep more lines in flight.
template <std::size_t kStreams, bool kPrefetch>
std::int64_t read_streams(const std::int64_t* data, std::int64_t bytes) {
  const std::size_t vectors = static_cast<std::size_t>(bytes) / 32 / kStreams;  // of one stream
  const auto* first = reinterpret_cast<const __m256i*>(data);
  __m256i sums[kStreams][2] = {};
  for (std::size_t i = 0; i < vectors; i += 2) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const __m256i* line = first + s * vectors + i;
      if (kPrefetch)
        _mm_prefetch(reinterpret_cast<const char*>(line) + kPrefetchBytes, _MM_HINT_T0);
      sums[s][0] = _mm256_xor_si256(sums[s][0], _mm256_load_si256(line));
      sums[s][1] = _mm256_xor_si256(sums[s][1], _mm256_load_si256(line + 1));
    }
  }
  std::int64_t all = 0;
  for (std::size_t s = 0; s < kStreams; ++s)
    all ^= xor_lanes(_mm256_xor_si256(sums[s][0], sums[s][1]));
  return all;
}

// The barrier makes each product a computation of its own: the factors may have changed.
void multiply_add(__m256i& sum, __m256i& a, __m256i& b) {
  asm volatile("" : "+x"(a), "+x"(b));
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
}

// One register for each index: an array under a loop would live in memory.
template <std::size_t... kIdx>
std::int64_t multiply(std::int64_t steps, std::index_sequence<kIdx...>) {
  __m256i a = _mm256_set1_epi8(1);
  __m256i b = _mm256_set1_epi8(2);
  __m256i sums[sizeof...(kIdx)] = {};
  for (std::int64_t step = 0; step < steps; ++step)
    (multiply_add(sums[kIdx], a, b), ...);
  return (xor_lanes(sums[kIdx]) ^ ...);
}

}  // namespace

std::int64_t read_avx2(const std::int64_t* data, std::int64_t bytes) {
  return read_streams<1, false>(data, bytes);
}

std::int64_t read_avx2_4_streams(const std::int64_t* data, std::int64_t bytes) {
  return read_streams<4, false>(data, bytes);
}

std::int64_t read_avx2_prefetch(const std::int64_t* data, std::int64_t bytes) {
  return read_streams<1, true>(data, bytes);
}

std::int64_t multiply_avx2(std::int64_t steps) {
  return multiply(steps, std::make_index_sequence<10>());
}

}  // namespace halfbyte::tool
