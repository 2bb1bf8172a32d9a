// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 with VNNI and VBMI: 16 rows of a panel a register. Everything has internal linkage but
// the two kernels.
#include "kernels/cpu/integer_zmm.h"

namespace halfbyte::cpu {
namespace {

constexpr int kRowsPerTile = 8;  // rows of x whose sums stay in registers

// 2 * e2m1 + 12 by code.
inline __m512i weight_values() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

inline __m512i four_bytes(const std::int8_t* src) {
  std::int32_t bytes;
  __builtin_memcpy(&bytes, src, sizeof(bytes));
  return _mm512_set1_epi32(bytes);
}

// The exact sums of 16 products, on top of `sum`.
inline __m512i add_products(__m512i sum, const BlockWeights& w, const std::int8_t* x) {
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad)
    sum = _mm512_dpbusd_epi32(sum, w.quad[quad], four_bytes(x + quad * 4));
  return sum;
}

template <int kNumX>
struct Totals {
  __m512 of[unsigned{kNumX}];
};

template <int kNumX>
inline void clear(Totals<kNumX>& totals) {
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    totals.of[t] = _mm512_setzero_ps();
}

template <int kNumX>
inline void add_superblock(const std::uint8_t* superblock,
                           const Split15Record* const* x,
                           Totals<kNumX>& total) {
  Totals<kNumX> sum;
  clear(sum);
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block(superblock, block);
    const BlockWeights w = load_block(superblock, block, weight_values());
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t) {
      const __m512i high = add_products(_mm512_setzero_si512(), w, x[t]->high + block * 16);
      const __m512i low =
          add_products(_mm512_set1_epi32(x[t]->correction[block]), w, x[t]->low + block * 16);
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
      sum.of[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), w.scale, sum.of[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t) {
    const __m512 scaled = _mm512_mul_ps(sum.of[t], _mm512_set1_ps(0x1p105F));
    total.of[t] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x[t]->scale), total.of[t]);
  }
}

template <int kNumX>
inline void add_superblock(const std::uint8_t* superblock,
                           const Int8Record* const* x,
                           Totals<kNumX>& total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block(superblock, block);
    const BlockWeights w = load_block(superblock, block, weight_values());
    const __m512 scale = _mm512_mul_ps(w.scale, _mm512_set1_ps(0x1p105F));
    const __m512 bias = _mm512_mul_ps(scale, _mm512_set1_ps(kFloatBiasValue));
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t) {
      const __m512i dot =
          add_products(_mm512_set1_epi32(x[t]->start[block]), w, x[t]->q + block * 16);
      const __m512 scaled = _mm512_fmsub_ps(_mm512_castsi512_ps(dot), scale, bias);  // exact
      total.of[t] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x[t]->scale[block]), total.of[t]);
    }
  }
}

template <int kNumX, typename Record>
void dot_rows(const std::uint8_t* panel,
              std::int64_t num_superblocks,
              const Record* const* x,
              float* sums) {
  Totals<kNumX> total;
  clear(total);
  const Record* record[unsigned{kNumX}];
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    record[t] = x[t];
  for (std::int64_t i = 0; i < num_superblocks; ++i, panel += kSuperblockBytes) {
    add_superblock<kNumX>(panel, record, total);
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t)
      ++record[t];
  }
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    _mm512_storeu_ps(sums + t * kPanelRows, total.of[t]);
}

template <typename Record>
void dot_tail(const std::uint8_t* panel,
              std::int64_t num_superblocks,
              const Record* const* x,
              int num_x,
              float* sums) {
  switch (num_x) {
    case 1:
      return dot_rows<1>(panel, num_superblocks, x, sums);
    case 2:
      return dot_rows<2>(panel, num_superblocks, x, sums);
    case 3:
      return dot_rows<3>(panel, num_superblocks, x, sums);
    case 4:
      return dot_rows<4>(panel, num_superblocks, x, sums);
    case 5:
      return dot_rows<5>(panel, num_superblocks, x, sums);
    case 6:
      return dot_rows<6>(panel, num_superblocks, x, sums);
    case 7:
      return dot_rows<7>(panel, num_superblocks, x, sums);
    default:
      return;
  }
}

template <typename Record>
void dot_panel(const std::uint8_t* panel,
               std::int64_t num_superblocks,
               const Record* const* x,
               int num_x,
               float* sums) {
  for (; num_x >= kRowsPerTile; num_x -= kRowsPerTile) {
    dot_rows<kRowsPerTile>(panel, num_superblocks, x, sums);
    x += kRowsPerTile;
    sums += kRowsPerTile * kPanelRows;
  }
  dot_tail(panel, num_superblocks, x, num_x, sums);
}

}  // namespace

void split15_dot_avx512(const std::uint8_t* panel,
                        std::int64_t num_superblocks,
                        const Split15Record* const* x,
                        int num_x,
                        float* sums) {
  dot_panel(panel, num_superblocks, x, num_x, sums);
}

void int8_dot_avx512(const std::uint8_t* panel,
                     std::int64_t num_superblocks,
                     const Int8Record* const* x,
                     int num_x,
                     float* sums) {
  dot_panel(panel, num_superblocks, x, num_x, sums);
}

}  // namespace halfbyte::cpu
