// SPDX-License-Identifier: Apache-2.0
//
// The integer kernels for 32-byte registers: 8 rows of a panel a register. Up to kFewRows rows of x
// multiply a panel as it is decoded; more rows pass chunks of it that were. Included by the units
// that define what a dot product of bytes is, and how far ahead of the reader to prefetch (Dot);
// everything has internal linkage, so that no unit's code can be linked in for another.
#ifndef HALFBYTE_KERNELS_CPU_INTEGER_YMM_H_
#define HALFBYTE_KERNELS_CPU_INTEGER_YMM_H_

#include <immintrin.h>

#include "kernels/cpu/integer_chunks.h"

namespace halfbyte::cpu {
namespace {

constexpr int kFewRows = 4;  // of x: they multiply a panel as it is decoded

inline const std::uint8_t* line_of(const std::uint8_t* superblock, int block, int quad) {
  return superblock + 64 + (block * 2 + quad / 2) * 64;
}

// 2 * e2m1 + 12 of the four columns `quad` of a block, 8 rows: bytes 4n + j.
inline __m256i load_weights(const std::uint8_t* superblock, int block, int quad, int half) {
  const __m256i values = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const std::uint8_t* src = line_of(superblock, block, quad) + half * 32;
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
  if (quad % 2 == 0)
    return _mm256_shuffle_epi8(values, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  // Masked before they are shifted: an and reads memory itself, a shift wants a load first.
  const __m256i upper = _mm256_and_si256(codes, _mm256_set1_epi8(-16));
  return _mm256_shuffle_epi8(values, _mm256_srli_epi16(upper, 4));
}

// The scales of a block as they lie, 2^105 too small.
inline __m256 load_block_scale(const std::uint8_t* superblock, int block, int half) {
  const std::uint8_t* src = superblock + block * kPanelRows + half * 8;
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(src)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 20));
}

// The 32 bits at `src`, 8 times.
inline __m256i broadcast(const void* src) {
  std::int32_t word;
  __builtin_memcpy(&word, src, sizeof(word));
  return _mm256_set1_epi32(word);
}

// Past a panel's end the next one begins.
template <typename Dot>
inline void prefetch_block(const std::uint8_t* superblock, int block) {
  const auto* ahead = reinterpret_cast<const char*>(superblock + Dot::kPrefetchBytes + block * 128);
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + 64, _MM_HINT_T0);
  if (block == 3) _mm_prefetch(ahead + 128, _MM_HINT_T0);
}

// Left alone, compilers add up a block's products as trees, which keeps four times as many of them
// alive as there are registers.
inline void add_here(__m256i& sum) {
  __asm__ volatile("" : "+x"(sum));
}

template <int kNumX, int kNumHalves>
struct Totals {
  __m256 of[unsigned{kNumHalves}][unsigned{kNumX}];
};

template <int kNumX, int kNumHalves>
inline void clear(Totals<kNumX, kNumHalves>& totals) {
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      totals.of[h][t] = _mm256_setzero_ps();
  }
}

template <int kNumX, int kNumHalves>
inline void store(const Totals<kNumX, kNumHalves>& totals, int first_half, float* sums) {
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      _mm256_storeu_ps(sums + t * kPanelRows + (first_half + h) * 8, totals.of[h][t]);
  }
}

template <int kNumX>
inline void load(const float* sums, Totals<kNumX, 2>& totals) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      totals.of[h][t] = _mm256_loadu_ps(sums + t * kPanelRows + h * 8);
  }
}

// One block of 16 columns: its exact sums times the weights' scales, added to `sum`.
template <typename Dot, int kNumX, int kNumHalves>
inline void add_block(const std::uint8_t* superblock,
                      int block,
                      int first_half,
                      const Split15Record* const* x,
                      Totals<kNumX, kNumHalves>& sum) {
  __m256i low[unsigned{kNumHalves}][unsigned{kNumX}];
  __m256i high[unsigned{kNumHalves}][unsigned{kNumX}];
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad) {
#pragma GCC unroll 2
    for (int h = 0; h < kNumHalves; ++h) {
      const __m256i w = load_weights(superblock, block, quad, first_half + h);
#pragma GCC unroll 4
      for (int t = 0; t < kNumX; ++t) {
        const int at = block * 16 + quad * 4;
        low[h][t] = Dot::add(quad == 0, low[h][t], w, broadcast(x[t]->low + at));
        high[h][t] = Dot::add(quad == 0, high[h][t], w, broadcast(x[t]->high + at));
        add_here(low[h][t]);
        add_here(high[h][t]);
      }
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
    const __m256 scale = load_block_scale(superblock, block, first_half + h);
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t) {
      const __m256i dot =
          Dot::join(low[h][t], high[h][t], _mm256_set1_epi32(x[t]->correction[block]));
      sum.of[h][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum.of[h][t]);
    }
  }
}

template <typename Dot, int kNumX, int kNumHalves>
inline void add_superblock(const std::uint8_t* superblock,
                           int first_half,
                           const Split15Record* const* x,
                           Totals<kNumX, kNumHalves>& total) {
  Totals<kNumX, kNumHalves> sum;
  clear(sum);
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block<Dot>(superblock, block);
    add_block<Dot>(superblock, block, first_half, x, sum);
  }
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t) {
      const __m256 scaled = _mm256_mul_ps(sum.of[h][t], _mm256_set1_ps(0x1p105F));
      total.of[h][t] = _mm256_fmadd_ps(scaled, _mm256_broadcast_ss(&x[t]->scale), total.of[h][t]);
    }
  }
}

template <typename Dot, int kNumX, int kNumHalves>
inline void add_block(const std::uint8_t* superblock,
                      int block,
                      int first_half,
                      const Int8Record* const* x,
                      Totals<kNumX, kNumHalves>& total) {
  __m256i sum[unsigned{kNumHalves}][unsigned{kNumX}];
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad) {
#pragma GCC unroll 2
    for (int h = 0; h < kNumHalves; ++h) {
      const __m256i w = load_weights(superblock, block, quad, first_half + h);
#pragma GCC unroll 4
      for (int t = 0; t < kNumX; ++t) {
        const std::int8_t* q = x[t]->q + block * 16 + quad * 4;
        sum[h][t] = Dot::add(quad == 0, sum[h][t], w, broadcast(q));
        add_here(sum[h][t]);
      }
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < kNumHalves; ++h) {
    const __m256 scale = _mm256_mul_ps(load_block_scale(superblock, block, first_half + h),
                                       _mm256_set1_ps(0x1p105F));
    const __m256 bias = _mm256_mul_ps(scale, _mm256_set1_ps(kFloatBiasValue));
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t) {
      const __m256i dot = Dot::finish(sum[h][t], _mm256_set1_epi32(x[t]->start[block]));
      const __m256 scaled = _mm256_fmsub_ps(_mm256_castsi256_ps(dot), scale, bias);  // exact
      total.of[h][t] =
          _mm256_fmadd_ps(scaled, _mm256_broadcast_ss(x[t]->scale + block), total.of[h][t]);
    }
  }
}

template <typename Dot, int kNumX, int kNumHalves>
inline void add_superblock(const std::uint8_t* superblock,
                           int first_half,
                           const Int8Record* const* x,
                           Totals<kNumX, kNumHalves>& total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block<Dot>(superblock, block);
    add_block<Dot>(superblock, block, first_half, x, total);
  }
}

template <typename Dot, int kNumX, int kNumHalves, typename Record>
void dot_halves(const std::uint8_t* panel,
                std::int64_t num_superblocks,
                const Record* const* x,
                int first_half,
                float* sums) {
  Totals<kNumX, kNumHalves> total;
  clear(total);
  const Record* record[unsigned{kNumX}];
#pragma GCC unroll 4
  for (int t = 0; t < kNumX; ++t)
    record[t] = x[t];
  for (std::int64_t i = 0; i < num_superblocks; ++i, panel += kSuperblockBytes) {
    add_superblock<Dot>(panel, first_half, record, total);
#pragma GCC unroll 4
    for (int t = 0; t < kNumX; ++t)
      ++record[t];
  }
  store(total, first_half, sums);
}

// One or two rows: both halves of the panel in one pass. More: one half at a time, so that sums
// and weights fit in 16 registers.
template <typename Dot, typename Record>
void dot_few(const std::uint8_t* panel,
             std::int64_t num_superblocks,
             const Record* const* x,
             int num_x,
             float* sums) {
  if (num_x == 1) dot_halves<Dot, 1, 2>(panel, num_superblocks, x, 0, sums);
  if (num_x == 2) dot_halves<Dot, 2, 2>(panel, num_superblocks, x, 0, sums);
  for (int half = 0; half < 2; ++half) {
    if (num_x == 3) dot_halves<Dot, 3, 1>(panel, num_superblocks, x, half, sums);
    if (num_x == 4) dot_halves<Dot, 4, 1>(panel, num_superblocks, x, half, sums);
  }
}

// ------------------------------------------------------------------------------- many rows

constexpr int kRowsPerTile = 3;  // and both halves: six sums of a block and six totals

// 16 columns of a panel, ready to multiply.
template <typename Record>
struct Block;

// Products of bytes: 2 * e2m1 + 12, four columns a register.
template <>
struct Block<Int8Record> {
  __m256i weight[4][2];
  __m256 scale[2];
  __m256 bias[2];  // what kFloatBias has become once it is scaled
};

// Products of words: 256 * 2 * e2m1, two columns a register, in the order of Split15Record::q.
template <>
struct Block<Split15Record> {
  __m256i weight[8][2];
  __m256 scale[2];  // 256 times too small
};

inline void decode_half(const std::uint8_t* superblock,
                        int block,
                        int half,
                        Block<Int8Record>& dst) {
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad)
    dst.weight[quad][half] = load_weights(superblock, block, quad, half);
  const __m256 scale = load_block_scale(superblock, block, half);
  dst.scale[half] = _mm256_mul_ps(scale, _mm256_set1_ps(0x1p105F));
  dst.bias[half] = _mm256_mul_ps(dst.scale[half], _mm256_set1_ps(kFloatBiasValue));
}

// A code that is looked up into the upper byte of a word, above zeros, is a signed word of 256
// times its value: no sign is extended. Zeros are looked up as code 0.
inline void decode_half(const std::uint8_t* superblock,
                        int block,
                        int half,
                        Block<Split15Record>& dst) {
  const __m256i values = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  const __m256i upper = _mm256_set1_epi16(0x0F00);
#pragma GCC unroll 2
  for (int line = 0; line < 2; ++line) {
    const std::uint8_t* src = line_of(superblock, block, line * 2) + half * 32;
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
    const __m256i places[4] = {_mm256_slli_epi16(codes, 8), codes, _mm256_slli_epi16(codes, 4),
                               _mm256_srli_epi16(codes, 4)};
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      dst.weight[line * 4 + pair][half] =
          _mm256_shuffle_epi8(values, _mm256_and_si256(places[pair], upper));
    }
  }
  const __m256 scale = load_block_scale(superblock, block, half);
  dst.scale[half] = _mm256_mul_ps(scale, _mm256_set1_ps(0x1p97F));
}

template <typename Record>
inline void decode(const std::uint8_t* superblock, int block, Block<Record>& dst) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half)
    decode_half(superblock, block, half, dst);
}

template <typename Dot, int kNumX>
inline void add_block(const Block<Int8Record>& w,
                      int block,
                      const Int8Record* const* x,
                      Totals<kNumX, 2>& total) {
  __m256i sum[2][unsigned{kNumX}];
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad) {
#pragma GCC unroll 3
    for (int t = 0; t < kNumX; ++t) {
      const __m256i q = broadcast(x[t]->q + block * 16 + quad * 4);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sum[h][t] = Dot::add(quad == 0, sum[h][t], w.weight[quad][h], q);
        add_here(sum[h][t]);
      }
    }
  }
#pragma GCC unroll 3
  for (int t = 0; t < kNumX; ++t) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i dot = Dot::finish(sum[h][t], _mm256_set1_epi32(x[t]->start[block]));
      const __m256 scaled = _mm256_fmsub_ps(_mm256_castsi256_ps(dot), w.scale[h], w.bias[h]);
      total.of[h][t] =
          _mm256_fmadd_ps(scaled, _mm256_broadcast_ss(x[t]->scale + block), total.of[h][t]);
    }
  }
}

template <typename Dot, int kNumX>
inline void add_block(const Block<Split15Record>& w,
                      int block,
                      const Split15Record* const* x,
                      Totals<kNumX, 2>& sum) {
  __m256i dot[2][unsigned{kNumX}];
#pragma GCC unroll 8
  for (int pair = 0; pair < 8; ++pair) {
#pragma GCC unroll 3
    for (int t = 0; t < kNumX; ++t) {
      const __m256i q = broadcast(x[t]->q + block * 16 + pair * 2);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        dot[h][t] = Dot::add_words(pair == 0, dot[h][t], w.weight[pair][h], q);
        add_here(dot[h][t]);
      }
    }
  }
#pragma GCC unroll 3
  for (int t = 0; t < kNumX; ++t) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      sum.of[h][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][t]), w.scale[h], sum.of[h][t]);
  }
}

template <typename Dot, int kNumX>
inline void add_superblock(const Block<Int8Record>* blocks,
                           const Int8Record* const* x,
                           Totals<kNumX, 2>& total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block)
    add_block<Dot>(blocks[block], block, x, total);
}

template <typename Dot, int kNumX>
inline void add_superblock(const Block<Split15Record>* blocks,
                           const Split15Record* const* x,
                           Totals<kNumX, 2>& total) {
  Totals<kNumX, 2> sum;
  clear(sum);
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block)
    add_block<Dot>(blocks[block], block, x, sum);
#pragma GCC unroll 3
  for (int t = 0; t < kNumX; ++t) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      total.of[h][t] =
          _mm256_fmadd_ps(sum.of[h][t], _mm256_broadcast_ss(&x[t]->scale), total.of[h][t]);
  }
}

// The first two tiles also prefetch, each half of every superblock. Not inlined: what all tiles
// need leaves too few registers for one.
template <typename Dot, int kNumX, typename Record>
[[gnu::noinline]] void add_chunk(const Chunk<Block<Record>>& chunk,
                                 int tile_idx,
                                 const Record* const* x,
                                 float* sums) {
  Totals<kNumX, 2> total;
  load(sums, total);
  const Record* record[unsigned{kNumX}];
#pragma GCC unroll 3
  for (int t = 0; t < kNumX; ++t)
    record[t] = x[t] + chunk.first;
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    if (tile_idx < 2) {
      prefetch_block<Dot>(chunk.src + i * kSuperblockBytes, tile_idx * 2);
      prefetch_block<Dot>(chunk.src + i * kSuperblockBytes, tile_idx * 2 + 1);
    }
    add_superblock<Dot>(chunk.blocks[i], record, total);
#pragma GCC unroll 3
    for (int t = 0; t < kNumX; ++t)
      ++record[t];
  }
  store(total, 0, sums);
}

template <typename Dot, typename Record>
void dot_many(const std::uint8_t* panel,
              std::int64_t num_superblocks,
              const Record* const* x,
              int num_x,
              float* sums) {
  using Blocks = Chunk<Block<Record>>;
  const auto add_tile = [](const Blocks& chunk, int tile_idx, const Record* const* rows, int count,
                           float* dst) {
    if (count == 1) return add_chunk<Dot, 1>(chunk, tile_idx, rows, dst);
    if (count == 2) return add_chunk<Dot, 2>(chunk, tile_idx, rows, dst);
    add_chunk<Dot, kRowsPerTile>(chunk, tile_idx, rows, dst);
  };
  pass_chunks<kRowsPerTile, Block<Record>>(panel, num_superblocks, x, num_x, sums, add_tile);
}

template <typename Dot, typename Record>
void dot_panel(const std::uint8_t* panel,
               std::int64_t num_superblocks,
               const Record* const* x,
               int num_x,
               float* sums) {
  if (num_x <= kFewRows) return dot_few<Dot>(panel, num_superblocks, x, num_x, sums);
  dot_many<Dot>(panel, num_superblocks, x, num_x, sums);
}

}  // namespace
}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_INTEGER_YMM_H_
