// SPDX-License-Identifier: Apache-2.0
//
// AVX2: products of unsigned weights and signed activations are added in pairs (vpmaddubsw), four
// pairs of a block in 16 bits: 4 * 2 * 24 * 127 < 32767.
#include "kernels/cpu/integer_ymm.h"

namespace halfbyte::cpu {
namespace {

struct PairDot {
  // On Zen 3 three and four superblocks are alike, two and six cost int8 3 %, eight up to 7 %.
  static constexpr std::int64_t kPrefetchBytes = 4 * kSuperblockBytes;

  static __m256i add(bool first, __m256i sum, __m256i w, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(w, x);
    return first ? pairs : _mm256_add_epi16(sum, pairs);
  }
  static __m256i add_words(bool first, __m256i sum, __m256i w, __m256i x) {
    const __m256i pairs = _mm256_madd_epi16(w, x);
    return first ? pairs : _mm256_add_epi32(sum, pairs);
  }
  static __m256i finish(__m256i sum, __m256i correction) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), correction);
  }
  static __m256i join(__m256i low, __m256i high, __m256i correction) {
    return _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(128)),
                            finish(low, correction));
  }
};

}  // namespace

void split15_dot_avx2(const std::uint8_t* panel,
                      std::int64_t num_superblocks,
                      const Split15Record* const* x,
                      int num_x,
                      float* sums) {
  dot_panel<PairDot>(panel, num_superblocks, x, num_x, sums);
}

void int8_dot_avx2(const std::uint8_t* panel,
                   std::int64_t num_superblocks,
                   const Int8Record* const* x,
                   int num_x,
                   float* sums) {
  dot_panel<PairDot>(panel, num_superblocks, x, num_x, sums);
}

}  // namespace halfbyte::cpu
