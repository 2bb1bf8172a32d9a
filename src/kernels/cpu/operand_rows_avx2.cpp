// SPDX-License-Identifier: Apache-2.0
//
// The quantisers of operand_rows.h, 8 values at a time, the same bits.
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

inline __m256i words_of(const Codes& codes) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(codes.of[0], codes.of[1]), 0xD8);
}

inline void store_bytes(const Codes& codes, std::int8_t* dst) {
  const __m256i words = words_of(codes);
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

// In the order of split15_q_position(): the middle two of every four change places.
inline void store_words(const Codes& codes, std::int16_t* dst) {
  const __m256i words = _mm256_shufflelo_epi16(words_of(codes), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm256_shufflehi_epi16(words, 0xD8));
}

inline void clear(Split15Record& record) {
  const __m256i zero = _mm256_setzero_si256();
  auto* dst = reinterpret_cast<__m256i*>(&record);
#pragma GCC unroll 9
  for (int i = 0; i < 9; ++i)
    _mm256_storeu_si256(dst + i, zero);
}

inline void clear(Int8Record& record) {
  const __m256i zero = _mm256_setzero_si256();
  auto* dst = reinterpret_cast<__m256i*>(&record);
  _mm256_storeu_si256(dst, zero);
  _mm256_storeu_si256(dst + 1, zero);
  _mm256_storeu_si256(
      dst + 2, _mm256_setr_epi32(kFloatBias, kFloatBias, kFloatBias, kFloatBias, 0, 0, 0, 0));
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
    store_words(codes, record.q + col);
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
  record.start[block] = kFloatBias - kWeightOffset * sum_of(codes);
  store_bytes(codes, record.q + block * kScaleCols);
}

// The scalars of docs/numerics.md 3 for one scale s.
struct Nvfp4Scale {
  float c = 0;
  float d = 0;
};

inline Nvfp4Scale nvfp4_scale(float s) {
  const float a = 1.0F / s;
  return {a * float_of(0x3E2AAAAB), 1.0F / a};
}

inline float nearest_integer(float value) {
  const __m128 v = _mm_set_ss(value);
  return _mm_cvtss_f32(_mm_round_ss(v, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// The value of E4M3_RN(t) for t >= 0, at least 2^-9: a block that is not zero has a scale.
inline float nearest_e4m3(float t) {
  if (t >= 448.0F) return 448.0F;
  if (t < 0x1p-6F) {
    const float rounded = nearest_integer(t * 512.0F) * 0x1p-9F;
    return rounded < 0x1p-9F ? 0x1p-9F : rounded;
  }
  auto bits = static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(t))));
  bits += 0x7FFFFU + (bits >> 20 & 1U);
  return float_of(bits & 0xFFF00000U);
}

// 2 * E2M1_RN(x * q) of 8 values. Even codes own both ends of their intervals.
inline __m256i nearest_e2m1(const float* x, __m256 q) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), q);
  const __m256 m = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), scaled);
  const auto above = [m](float border) {
    return _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(border), _CMP_GT_OQ));
  };
  const auto from = [m](float border) {
    return _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(border), _CMP_GE_OQ));
  };
  // Steps of 1 up to 4, of 2 up to 8, of 4 up to 12; each comparison is 0 or -1.
  const __m256i ones = _mm256_add_epi32(_mm256_add_epi32(above(0.25F), from(0.75F)),
                                        _mm256_add_epi32(above(1.25F), from(1.75F)));
  const __m256i twos = _mm256_add_epi32(above(2.5F), from(3.5F));
  const __m256i fours = _mm256_slli_epi32(above(5.0F), 2);
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(ones, fours), _mm256_add_epi32(twos, twos));
  const __m256i magnitude = _mm256_sub_epi32(_mm256_setzero_si256(), sum);
  return _mm256_sign_epi32(magnitude, _mm256_castps_si256(scaled));
}

inline void quantize_block(
    const float* x, float s, Nvfp4Scale scale, std::int64_t block, Int8Record& record) {
  const std::uint32_t bits = amax_bits(x, kScaleCols);
  if (bits >= kInfinityBits) {
    record.scale[block] = float_of(kInfinityBits + 0x400000);
    return;
  }
  if (bits == 0 || s == 0.0F) return;
  const float sf = nearest_e4m3(float_of(bits) * scale.c);
  const float inverse = 1.0F / (sf * scale.d);
  const float largest = float_of(kInfinityBits - 1);
  const __m256 q = _mm256_set1_ps(inverse < largest ? inverse : largest);
  const Codes codes = {{nearest_e2m1(x, q), nearest_e2m1(x + 8, q)}};
  record.scale[block] = sf * 0.25F;  // both operands count halves
  record.start[block] = kFloatBias - kWeightOffset * sum_of(codes);
  store_bytes(codes, record.q + block * kScaleCols);
}

}  // namespace

void quantize_nvfp4_avx2(const float* x, std::int64_t cols, float s, Int8Record* row) {
  const Nvfp4Scale scale = nvfp4_scale(s);
  for (std::int64_t col = 0; col < cols; col += kScaleCols) {
    Int8Record& record = row[col / kSuperblockCols];
    if (col % kSuperblockCols == 0) clear(record);
    quantize_block(x + col, s, scale, col % kSuperblockCols / kScaleCols, record);
  }
}

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
