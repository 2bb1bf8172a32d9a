// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 intrinsics in plain C++, lane by lane as Intel's manual defines them, under the names of
// the real ones: for a unit that includes the source of a kernel after this.
#ifndef HALFBYTE_TESTS_UNIT_KERNELS_CPU_EMULATED_AVX512_H_
#define HALFBYTE_TESTS_UNIT_KERNELS_CPU_EMULATED_AVX512_H_

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace halfbyte::emulated {

struct Lanes {
  std::uint32_t of[16];
};
struct Floats {
  float of[16];
};

template <typename Make>
Lanes lanes(Make make) {
  Lanes result{};
  for (unsigned i = 0; i < 16; ++i)
    result.of[i] = static_cast<std::uint32_t>(make(i));
  return result;
}

template <typename Make>
Floats floats(Make make) {
  Floats result{};
  for (unsigned i = 0; i < 16; ++i)
    result.of[i] = make(i);
  return result;
}

inline std::uint32_t word_of(const Lanes& a, unsigned i) {
  return a.of[i / 2] >> i % 2 * 16 & 0xFFFFU;
}

inline std::uint32_t byte_of(const Lanes& a, unsigned i) {
  return a.of[i / 4] >> i % 4 * 8 & 0xFFU;
}

inline Lanes broadcast_i32x4(__m128i a) {
  std::uint32_t words[4];
  std::memcpy(words, &a, sizeof(words));
  return lanes([&](unsigned i) { return words[i % 4]; });
}

inline Lanes loadu_si512(const void* src) {
  Lanes result;
  std::memcpy(&result, src, sizeof(result));
  return result;
}

inline Lanes cvtepu8_epi32(__m128i a) {
  std::uint8_t bytes[16];
  std::memcpy(bytes, &a, sizeof(bytes));
  return lanes([&](unsigned i) { return bytes[i]; });
}

// vpermb: byte i of the result is the byte of `table` that the low 6 bits of byte i name.
inline Lanes permutexvar_epi8(const Lanes& index, const Lanes& table) {
  return lanes([&](unsigned i) {
    std::uint32_t word = 0;
    for (unsigned j = 0; j < 4; ++j)
      word |= byte_of(table, byte_of(index, i * 4 + j) & 63U) << j * 8;
    return word;
  });
}

inline Lanes maskz_permutexvar_epi8(std::uint64_t mask, const Lanes& index, const Lanes& table) {
  const Lanes bytes = permutexvar_epi8(index, table);
  return lanes([&](unsigned i) {
    std::uint32_t word = 0;
    for (unsigned j = 0; j < 4; ++j)
      word |= (mask >> (i * 4 + j) & 1U) != 0 ? byte_of(bytes, i * 4 + j) << j * 8 : 0U;
    return word;
  });
}

inline Lanes slli_epi16(const Lanes& a, unsigned count) {
  return lanes([&](unsigned i) {
    return word_of(a, 2 * i + 1) << count << 16 | (word_of(a, 2 * i) << count & 0xFFFFU);
  });
}

inline Lanes srli_epi16(const Lanes& a, unsigned count) {
  return lanes(
      [&](unsigned i) { return (a.of[i] >> 16 >> count) << 16 | (a.of[i] & 0xFFFFU) >> count; });
}

inline Lanes slli_epi32(const Lanes& a, unsigned count) {
  return lanes([&](unsigned i) { return a.of[i] << count; });
}

inline Lanes set1_epi32(std::int32_t value) {
  return lanes([&](unsigned) { return value; });
}

inline Lanes add_epi32(const Lanes& a, const Lanes& b) {
  return lanes([&](unsigned i) { return a.of[i] + b.of[i]; });
}

// vpdpbusd: four products of unsigned and signed bytes, added to 32 bits.
inline Lanes dpbusd_epi32(const Lanes& sum, const Lanes& a, const Lanes& b) {
  return lanes([&](unsigned i) {
    auto result = static_cast<std::int32_t>(sum.of[i]);
    for (unsigned j = 0; j < 4; ++j) {
      result += static_cast<std::int32_t>(byte_of(a, i * 4 + j)) *
                static_cast<std::int8_t>(byte_of(b, i * 4 + j));
    }
    return result;
  });
}

// vpdpwssd: two products of signed words, added to 32 bits.
inline Lanes dpwssd_epi32(const Lanes& sum, const Lanes& a, const Lanes& b) {
  return lanes([&](unsigned i) {
    auto result = static_cast<std::int32_t>(sum.of[i]);
    for (unsigned j = 2 * i; j < 2 * i + 2; ++j)
      result += static_cast<std::int16_t>(word_of(a, j)) * static_cast<std::int16_t>(word_of(b, j));
    return result;
  });
}

inline Lanes madd_epi16(const Lanes& a, const Lanes& b) {
  return dpwssd_epi32(Lanes{}, a, b);
}

inline Floats castsi512_ps(const Lanes& a) {
  return floats([&](unsigned i) { return std::bit_cast<float>(a.of[i]); });
}

inline Floats cvtepi32_ps(const Lanes& a) {
  return floats([&](unsigned i) { return static_cast<float>(static_cast<std::int32_t>(a.of[i])); });
}

inline Floats set1_ps(float value) {
  return floats([&](unsigned) { return value; });
}

inline Floats mul_ps(const Floats& a, const Floats& b) {
  return floats([&](unsigned i) { return a.of[i] * b.of[i]; });
}

inline Floats fmadd_ps(const Floats& a, const Floats& b, const Floats& c) {
  return floats([&](unsigned i) { return std::fma(a.of[i], b.of[i], c.of[i]); });
}

inline Floats fmsub_ps(const Floats& a, const Floats& b, const Floats& c) {
  return floats([&](unsigned i) { return std::fma(a.of[i], b.of[i], -c.of[i]); });
}

inline void storeu_ps(float* dst, const Floats& a) {
  std::memcpy(dst, &a, sizeof(a));
}

inline Floats loadu_ps(const float* src) {
  return floats([&](unsigned i) { return src[i]; });
}

inline void storeu_si512(void* dst, const Lanes& a) {
  std::memcpy(dst, &a, sizeof(a));
}

}  // namespace halfbyte::emulated

#define __m512i ::halfbyte::emulated::Lanes
#define __m512 ::halfbyte::emulated::Floats
#define _mm512_broadcast_i32x4 ::halfbyte::emulated::broadcast_i32x4
#define _mm512_loadu_si512 ::halfbyte::emulated::loadu_si512
#define _mm512_cvtepu8_epi32 ::halfbyte::emulated::cvtepu8_epi32
#define _mm512_permutexvar_epi8 ::halfbyte::emulated::permutexvar_epi8
#define _mm512_maskz_permutexvar_epi8 ::halfbyte::emulated::maskz_permutexvar_epi8
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 ::halfbyte::emulated::slli_epi16
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 ::halfbyte::emulated::srli_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 ::halfbyte::emulated::slli_epi32
#define _mm512_set1_epi32 ::halfbyte::emulated::set1_epi32
#define _mm512_setzero_si512() ::halfbyte::emulated::set1_epi32(0)
#define _mm512_add_epi32 ::halfbyte::emulated::add_epi32
#define _mm512_dpbusd_epi32 ::halfbyte::emulated::dpbusd_epi32
#define _mm512_dpwssd_epi32 ::halfbyte::emulated::dpwssd_epi32
#define _mm512_madd_epi16 ::halfbyte::emulated::madd_epi16
#define _mm512_castsi512_ps ::halfbyte::emulated::castsi512_ps
#define _mm512_cvtepi32_ps ::halfbyte::emulated::cvtepi32_ps
#define _mm512_set1_ps ::halfbyte::emulated::set1_ps
#define _mm512_setzero_ps() ::halfbyte::emulated::set1_ps(0.0F)
#define _mm512_mul_ps ::halfbyte::emulated::mul_ps
#define _mm512_fmadd_ps ::halfbyte::emulated::fmadd_ps
#define _mm512_fmsub_ps ::halfbyte::emulated::fmsub_ps
#define _mm512_storeu_ps ::halfbyte::emulated::storeu_ps
#define _mm512_loadu_ps ::halfbyte::emulated::loadu_ps
#define _mm512_storeu_si512 ::halfbyte::emulated::storeu_si512

#define HALFBYTE_EMULATED_AVX512  // products in assembly take another way

#define split15_dot_avx512 split15_dot_avx512_emulated
#define int8_dot_avx512 int8_dot_avx512_emulated

#endif  // HALFBYTE_TESTS_UNIT_KERNELS_CPU_EMULATED_AVX512_H_
