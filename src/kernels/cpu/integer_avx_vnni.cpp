// SPDX-License-Identifier: Apache-2.0
//
// AVX-VNNI: four products of unsigned weights and signed activations are added to 32 bits at once.
#include "kernels/cpu/integer_ymm.h"

namespace halfbyte::cpu {
namespace {

struct QuadDot {
  static constexpr std::int64_t kPrefetchBytes = 8 * kSuperblockBytes;

  static __m256i add(bool first, __m256i sum, __m256i w, __m256i x) {
    return _mm256_dpbusd_avx_epi32(first ? _mm256_setzero_si256() : sum, w, x);
  }
  static __m256i add_words(bool first, __m256i sum, __m256i w, __m256i x) {
    return first ? _mm256_madd_epi16(w, x) : _mm256_dpwssd_avx_epi32(sum, w, x);
  }
  static __m256i finish(__m256i sum, __m256i correction) {
    return _mm256_add_epi32(sum, correction);
  }
  static __m256i join(__m256i low, __m256i high, __m256i correction) {
    return _mm256_add_epi32(_mm256_slli_epi32(high, 7), finish(low, correction));
  }
};

}  // namespace

void split15_dot_avx_vnni(const std::uint8_t* panel,
                          std::int64_t num_superblocks,
                          const Split15Record* const* x,
                          int num_x,
                          float* sums) {
  dot_panel<QuadDot>(panel, num_superblocks, x, num_x, sums);
}

void int8_dot_avx_vnni(const std::uint8_t* panel,
                       std::int64_t num_superblocks,
                       const Int8Record* const* x,
                       int num_x,
                       float* sums) {
  dot_panel<QuadDot>(panel, num_superblocks, x, num_x, sums);
}

}  // namespace halfbyte::cpu
