// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 with VNNI and VBMI: 16 rows of a panel a register. Up to kRowsPerTile rows of x multiply
// a panel as it is decoded, which keeps up with memory; more rows pass chunks of it that were
// decoded once. Everything has internal linkage but the two kernels.
#include "kernels/cpu/integer_chunks.h"
#include "kernels/cpu/integer_zmm.h"

namespace halfbyte::cpu {
namespace {

constexpr int kRowsPerTile = 8;  // rows of x whose sums stay in registers

// 2 * e2m1 + 12 by code.
inline __m512i weight_values() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// The 32 bits at `src`, 16 times.
inline __m512i broadcast(const void* src) {
  std::int32_t word;
  __builtin_memcpy(&word, src, sizeof(word));
  return _mm512_set1_epi32(word);
}

// sum + the products of w and the 32 bits at x, bytes or words. The product itself broadcasts them,
// which g++ has no pattern for: it gives them an instruction and a register of their own. And left
// to clang, the products are put in an order that needs more registers than there are. The
// emulation takes the intrinsics: only a machine with AVX-512 tests the assembly.
#ifdef HALFBYTE_EMULATED_AVX512
inline __m512i add_bytes(__m512i sum, __m512i w, const std::int8_t* x) {
  return _mm512_dpbusd_epi32(sum, w, broadcast(x));
}
inline __m512i add_words(__m512i sum, __m512i w, const std::int16_t* x) {
  return _mm512_dpwssd_epi32(sum, w, broadcast(x));
}
#else
inline __m512i add_bytes(__m512i sum, __m512i w, const std::int8_t* x) {
  const auto& bytes = *reinterpret_cast<const std::int8_t(*)[4]>(x);
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(bytes));
  return sum;
}
inline __m512i add_words(__m512i sum, __m512i w, const std::int16_t* x) {
  const auto& words = *reinterpret_cast<const std::int16_t(*)[2]>(x);
  __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(words));
  return sum;
}
#endif

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
inline void load(const float* sums, Totals<kNumX>& totals) {
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    totals.of[t] = _mm512_loadu_ps(sums + t * kPanelRows);
}

template <int kNumX>
inline void store(const Totals<kNumX>& totals, float* sums) {
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    _mm512_storeu_ps(sums + t * kPanelRows, totals.of[t]);
}

// The rows of a tile, at one superblock's columns.
template <int kNumX, typename Record>
struct Tile {
  const Record* row[unsigned{kNumX}];

  Tile(const Record* const* x, std::int64_t superblock) {
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t)
      row[t] = x[t] + superblock;
  }
  void next() {
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t) {
      ++row[t];
      __asm__("" : "+r"(row[t]));  // or g++ keeps several pointers a record, and lacks registers
    }
  }
};

// ------------------------------------------------------------------------------- decoded weights

// 16 columns of a panel, ready to multiply.
template <typename Record>
struct Block;

// Products of bytes: 2 * e2m1 + 12, four columns a register.
template <>
struct Block<Int8Record> {
  __m512i weight[4];
  __m512 scale;
  __m512 bias;  // what kFloatBias has become once it is scaled
};

// Products of words: 256 * 2 * e2m1, two columns a register, in the order of Split15Record::q.
template <>
struct Block<Split15Record> {
  __m512i weight[8];
  __m512 scale;  // 256 times too small
};

inline void decode(const std::uint8_t* superblock, int block, Block<Int8Record>& dst) {
  const BlockWeights w = load_block(superblock, block, weight_values());
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad)
    dst.weight[quad] = w.quad[quad];
  dst.scale = _mm512_mul_ps(w.scale, _mm512_set1_ps(0x1p105F));
  dst.bias = _mm512_mul_ps(dst.scale, _mm512_set1_ps(kFloatBiasValue));
}

// A code that is looked up into the upper byte of a word, above zeros, is a signed word of 256
// times its value: no sign is extended.
inline void decode(const std::uint8_t* superblock, int block, Block<Split15Record>& dst) {
  const __mmask64 upper = 0xAAAAAAAAAAAAAAAA;
  const __m512i values = signed_weight_values();
#pragma GCC unroll 2
  for (int line = 0; line < 2; ++line) {
    const __m512i codes = load_line(superblock, block * 2 + line);
    __m512i* const weight = dst.weight + line * 4;
    weight[0] = _mm512_maskz_permutexvar_epi8(upper, _mm512_slli_epi16(codes, 8), values);
    weight[1] = _mm512_maskz_permutexvar_epi8(upper, codes, values);
    weight[2] = _mm512_maskz_permutexvar_epi8(upper, _mm512_slli_epi16(codes, 4), values);
    weight[3] = _mm512_maskz_permutexvar_epi8(upper, _mm512_srli_epi16(codes, 4), values);
  }
  dst.scale = _mm512_mul_ps(load_scales(superblock, block), _mm512_set1_ps(0x1p97F));
}

// ------------------------------------------------------------------------------- products

// The rows take turns, so that no product waits for the one before it.
template <int kNumX>
inline void add_block(const Block<Int8Record>& w,
                      int block,
                      const Tile<kNumX, Int8Record>& x,
                      Totals<kNumX>& total) {
  __m512i dot[unsigned{kNumX}];
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    dot[t] = _mm512_set1_epi32(x.row[t]->start[block]);
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad) {
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t)
      dot[t] = add_bytes(dot[t], w.weight[quad], x.row[t]->q + block * 16 + quad * 4);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t) {
    const __m512 scaled = _mm512_fmsub_ps(_mm512_castsi512_ps(dot[t]), w.scale, w.bias);  // exact
    total.of[t] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x.row[t]->scale[block]), total.of[t]);
  }
}

template <int kNumX>
inline void add_block(const Block<Split15Record>& w,
                      int block,
                      const Tile<kNumX, Split15Record>& x,
                      Totals<kNumX>& sum) {
  __m512i dot[unsigned{kNumX}];
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    dot[t] = _mm512_madd_epi16(w.weight[0], broadcast(x.row[t]->q + block * 16));
#pragma GCC unroll 7
  for (int pair = 1; pair < 8; ++pair) {
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t)
      dot[t] = add_words(dot[t], w.weight[pair], x.row[t]->q + block * 16 + pair * 2);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    sum.of[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]), w.scale, sum.of[t]);
}

template <int kNumX>
inline void add_superblock(const Block<Int8Record>* blocks,
                           const Tile<kNumX, Int8Record>& x,
                           Totals<kNumX>& total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block)
    add_block(blocks[block], block, x, total);
}

template <int kNumX>
inline void add_superblock(const Block<Split15Record>* blocks,
                           const Tile<kNumX, Split15Record>& x,
                           Totals<kNumX>& total) {
  Totals<kNumX> sum;
  clear(sum);
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block)
    add_block(blocks[block], block, x, sum);
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t)
    total.of[t] = _mm512_fmadd_ps(sum.of[t], _mm512_set1_ps(x.row[t]->scale), total.of[t]);
}

// ------------------------------------------------------------------------------- few rows

// The exact sums of 16 products, on top of `sum`.
inline __m512i add_products(__m512i sum, const BlockWeights& w, const std::int8_t* x) {
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad)
    sum = _mm512_dpbusd_epi32(sum, w.quad[quad], broadcast(x + quad * 4));
  return sum;
}

template <int kNumX>
inline void add_panel(const std::uint8_t* superblock,
                      const Tile<kNumX, Int8Record>& x,
                      Totals<kNumX>& total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block(superblock, block);
    Block<Int8Record> w;
    decode(superblock, block, w);
    add_block(w, block, x, total);
  }
}

// Bytes again: they take half as many instructions to decode as words, which here counts for more
// than the second plane of products.
template <int kNumX>
inline void add_panel(const std::uint8_t* superblock,
                      const Tile<kNumX, Split15Record>& x,
                      Totals<kNumX>& total) {
  Totals<kNumX> sum;
  clear(sum);
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block(superblock, block);
    const BlockWeights w = load_block(superblock, block, weight_values());
#pragma GCC unroll 8
    for (int t = 0; t < kNumX; ++t) {
      const Split15Record& row = *x.row[t];
      const __m512i high = add_products(_mm512_setzero_si512(), w, row.high + block * 16);
      const __m512i low =
          add_products(_mm512_set1_epi32(row.correction[block]), w, row.low + block * 16);
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
      sum.of[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), w.scale, sum.of[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kNumX; ++t) {
    const __m512 scaled = _mm512_mul_ps(sum.of[t], _mm512_set1_ps(0x1p105F));
    total.of[t] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x.row[t]->scale), total.of[t]);
  }
}

template <int kNumX, typename Record>
void dot_few(const std::uint8_t* panel,
             std::int64_t num_superblocks,
             const Record* const* x,
             float* sums) {
  Totals<kNumX> total;
  clear(total);
  Tile<kNumX, Record> tile(x, 0);
  for (std::int64_t i = 0; i < num_superblocks; ++i, panel += kSuperblockBytes) {
    add_panel(panel, tile, total);
    tile.next();
  }
  store(total, sums);
}

// ------------------------------------------------------------------------------- many rows

// The first two tiles also prefetch, each half of every superblock. Decoding reads 36 lines in no
// time, and a core can wait for some 16: prefetches as fast as that would hold it up.
//
// Not inlined: what all tiles need leaves too few registers for the pointers of one.
template <int kNumX, typename Record>
[[gnu::noinline]] void add_chunk(const Chunk<Block<Record>>& chunk,
                                 int tile_idx,
                                 const Record* const* x,
                                 float* sums) {
  Totals<kNumX> total;
  load(sums, total);
  Tile<kNumX, Record> tile(x, chunk.first);
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    if (tile_idx < 2) {
      prefetch_block(chunk.src + i * kSuperblockBytes, tile_idx * 2);
      prefetch_block(chunk.src + i * kSuperblockBytes, tile_idx * 2 + 1);
    }
    add_superblock(chunk.blocks[i], tile, total);
    tile.next();
  }
  store(total, sums);
}

// ------------------------------------------------------------------------------- both

template <int kCount>
struct Count {};

// run(Count<count>), 1 <= count <= kRowsPerTile.
template <typename Run>
inline void with_count(int count, const Run& run) {
  switch (count) {
    case 1:
      return run(Count<1>{});
    case 2:
      return run(Count<2>{});
    case 3:
      return run(Count<3>{});
    case 4:
      return run(Count<4>{});
    case 5:
      return run(Count<5>{});
    case 6:
      return run(Count<6>{});
    case 7:
      return run(Count<7>{});
    default:
      return run(Count<kRowsPerTile>{});
  }
}

template <typename Record>
void dot_many(const std::uint8_t* panel,
              std::int64_t num_superblocks,
              const Record* const* x,
              int num_x,
              float* sums) {
  using Blocks = Chunk<Block<Record>>;
  const auto add_tile = [](const Blocks& chunk, int tile_idx, const Record* const* rows, int count,
                           float* dst) {
    with_count(count,
               [&]<int kNumX>(Count<kNumX>) { add_chunk<kNumX>(chunk, tile_idx, rows, dst); });
  };
  pass_chunks<kRowsPerTile, Block<Record>>(panel, num_superblocks, x, num_x, sums, add_tile);
}

template <typename Record>
void dot_panel(const std::uint8_t* panel,
               std::int64_t num_superblocks,
               const Record* const* x,
               int num_x,
               float* sums) {
  if (num_x > kRowsPerTile) return dot_many(panel, num_superblocks, x, num_x, sums);
  with_count(num_x,
             [&]<int kNumX>(Count<kNumX>) { dot_few<kNumX>(panel, num_superblocks, x, sums); });
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
