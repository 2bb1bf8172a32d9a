// SPDX-License-Identifier: Apache-2.0
//
// quantize_split15 and quantize_int8 of operand_rows.h, 8 values at a time, the same bits.
#include <immintrin.h>

#include "kernels/cpu/integer_kernels.h"

namespace halfbyte::cpu {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000;

// The largest magnitude's bits; at or above kInfinityBits when a value is not finite.
inline std::uint32_t amax_bits(const float* x, std::int64_t count) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < count; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  }
  __m128i half =
      _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
}

inline float float_of(std::uint32_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}

// rint(x * inv_scale) of 16 values, in order.
struct Codes {
  __m256i of[2];
};

inline Codes nearest(const float* x, float inv_scale) {
  const __m256 inv = _mm256_set1_ps(inv_scale);
  return {{_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv)),
           _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inv))}};
}

inline std::int32_t sum_of(const Codes& codes) {
  const __m256i both = _mm256_add_epi32(codes.of[0], codes.of[1]);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  return _mm_cvtsi128_si32(sum);
}

inline void store_bytes(const Codes& codes, std::int8_t* dst) {
  const __m256i words =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(codes.of[0], codes.of[1]), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), bytes);
}

inline void store_split(const Codes& codes, std::int8_t* low, std::int8_t* high) {
  Codes upper;
  Codes lower;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    upper.of[i] = _mm256_srai_epi32(_mm256_add_epi32(codes.of[i], _mm256_set1_epi32(64)), 7);
    lower.of[i] = _mm256_sub_epi32(codes.of[i], _mm256_slli_epi32(upper.of[i], 7));
  }
  store_bytes(upper, high);
  store_bytes(lower, low);
}

inline void clear(Split15Record& record) {
  const __m256i zero = _mm256_setzero_si256();
  auto* dst = reinterpret_cast<__m256i*>(&record);
#pragma GCC unroll 5
  for (int i = 0; i < 5; ++i)
    _mm256_storeu_si256(dst + i, zero);
}

inline void clear(Int8Record& record) {
  const __m256i zero = _mm256_setzero_si256();
  auto* dst = reinterpret_cast<__m256i*>(&record);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i)
    _mm256_storeu_si256(dst + i, zero);
}

inline void quantize_group(const float* x, std::int64_t cols, Split15Record& record) {
  clear(record);
  const std::uint32_t bits = amax_bits(x, cols);
  const float amax = float_of(bits);
  if (amax < kSmallestAmax) return;
  if (bits >= kInfinityBits) {
    record.scale = float_of(kInfinityBits + 0x400000);
    return;
  }
  record.scale = amax / kSplit15Max * 0.5F;
  for (std::int64_t col = 0; col < cols; col += kScaleCols) {
    const Codes codes = nearest(x + col, kSplit15Max / amax);
    record.correction[col / kScaleCols] = -kWeightOffset * sum_of(codes);
    store_split(codes, record.low + col, record.high + col);
  }
}

inline void quantize_block(const float* x, std::int64_t block, Int8Record& record) {
  const std::uint32_t bits = amax_bits(x, kScaleCols);
  const float amax = float_of(bits);
  if (amax < kSmallestAmax) return;
  if (bits >= kInfinityBits) {
    record.scale[block] = float_of(kInfinityBits + 0x400000);
    return;
  }
  record.scale[block] = amax / kInt8Max * 0.5F;
  const Codes codes = nearest(x, kInt8Max / amax);
  record.correction[block] = -kWeightOffset * sum_of(codes);
  store_bytes(codes, record.q + block * kScaleCols);
}

}  // namespace

void quantize_split15_avx2(const float* x, std::int64_t cols, Split15Record* row) {
  for (std::int64_t col = 0; col < cols; col += kSuperblockCols, ++row)
    quantize_group(x + col, cols - col < kSuperblockCols ? cols - col : kSuperblockCols, *row);
}

void quantize_int8_avx2(const float* x, std::int64_t cols, Int8Record* row) {
  for (std::int64_t col = 0; col < cols; col += kScaleCols) {
    Int8Record& record = row[col / kSuperblockCols];
    if (col % kSuperblockCols == 0) clear(record);
    quantize_block(x + col, col % kSuperblockCols / kScaleCols, record);
  }
}

}  // namespace halfbyte::cpu
