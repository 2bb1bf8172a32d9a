// SPDX-License-Identifier: Apache-2.0
//
// The AVX-VNNI kernels on a machine with AVX2: the source of src/kernels/cpu/integer_avx_vnni.cpp
// with its two new instructions in AVX2. Weights are at most 24, so no pair saturates 16 bits.
#include <immintrin.h>

namespace halfbyte::emulated {
namespace {

inline __m256i dpbusd(__m256i sum, __m256i a, __m256i b) {
  const __m256i pairs = _mm256_maddubs_epi16(a, b);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline __m256i dpwssd(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

}  // namespace
}  // namespace halfbyte::emulated

#define _mm256_dpbusd_avx_epi32 ::halfbyte::emulated::dpbusd
#define _mm256_dpwssd_avx_epi32 ::halfbyte::emulated::dpwssd
#define split15_dot_avx_vnni split15_dot_avx_vnni_emulated
#define int8_dot_avx_vnni int8_dot_avx_vnni_emulated
#include "kernels/cpu/integer_avx_vnni.cpp"
