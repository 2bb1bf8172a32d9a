// SPDX-License-Identifier: Apache-2.0
//
// AMX: tiles of up to 16 rows of x times a block of 16 columns of a panel, in int8; what comes
// before and after a product is AVX-512. A product adds up all columns of its tiles, and each block
// has scales of its own, so tiles are a quarter as deep as they could be.
#include <atomic>
#include <cstring>

#include "kernels/cpu/integer_zmm.h"

namespace halfbyte::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kFewRows = 2;  // up to so many of x pass faster without tiles

// As the processor reads it. Tiles 0 to 3: sums of the blocks of a superblock; 4 and 6: x; 5 and 7:
// weights, four columns of 16 rows in a tile's row.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, kScaleCols, 64, kScaleCols, 64};
  std::uint8_t rows[16] = {};

  explicit TileConfig(std::uint8_t rows_of_x) {
    for (const int tile : {0, 1, 2, 3, 4, 6})
      rows[tile] = rows_of_x;
    rows[5] = rows[7] = 4;
  }
};
static_assert(sizeof(TileConfig) == 64);

// What passes between registers and tiles. Neither kind of load gets what the other kind of store
// has not yet written to the cache, so there are two of each: one is written while the other is
// read.
struct alignas(64) Weights {
  std::int8_t of[4][4][64];    // [block][quad]: bytes 4n + j
  float scale[4][kPanelRows];  // 2^105 too small
};
struct alignas(64) Rows {
  std::int8_t x[2][kTileRows][64];                 // [plane]
  std::int32_t dots[2][4][kTileRows][kPanelRows];  // [plane][block]
};

// The tiles' loads are not known to the compiler as such.
inline void finish_stores() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline void multiply_plane(const Weights& weights, int plane, Rows& rows) {
  const std::int8_t* x = rows.x[plane][0];
  _tile_loadd(4, x, 64);
  _tile_loadd(5, weights.of[0], 64);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 5);
  _tile_loadd(6, x + kScaleCols, 64);
  _tile_loadd(7, weights.of[1], 64);
  _tile_zero(1);
  _tile_dpbssd(1, 6, 7);
  _tile_loadd(4, x + 2 * kScaleCols, 64);
  _tile_loadd(5, weights.of[2], 64);
  _tile_zero(2);
  _tile_dpbssd(2, 4, 5);
  _tile_loadd(6, x + 3 * kScaleCols, 64);
  _tile_loadd(7, weights.of[3], 64);
  _tile_zero(3);
  _tile_dpbssd(3, 6, 7);
  _tile_stored(0, rows.dots[plane][0], 64);
  _tile_stored(1, rows.dots[plane][1], 64);
  _tile_stored(2, rows.dots[plane][2], 64);
  _tile_stored(3, rows.dots[plane][3], 64);
}

inline void decode_superblock(const std::uint8_t* superblock, Weights& weights) {
  const __m512i values = signed_weight_values();
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    prefetch_block(superblock, block);
    const BlockWeights w = load_block(superblock, block, values);
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad)
      _mm512_storeu_si512(weights.of[block][quad], w.quad[quad]);
    _mm512_storeu_ps(weights.scale[block], w.scale);
  }
}

inline void copy_plane(const std::int8_t* src, std::int8_t* dst) {
  _mm512_storeu_si512(dst, _mm512_loadu_si512(src));
}

inline void copy_row(const Split15Record& x, Rows& rows, int row) {
  copy_plane(x.high, rows.x[0][row]);
  copy_plane(x.low, rows.x[1][row]);
}
inline void copy_row(const Int8Record& x, Rows& rows, int row) {
  copy_plane(x.q, rows.x[0][row]);
}

template <typename Record>
constexpr int kPlanes = 1;
template <>
constexpr int kPlanes<Split15Record> = 2;

// total + the superblock's products of one row of x.
inline __m512 add_row(
    const Split15Record& x, const Weights& weights, const Rows& rows, int row, __m512 total) {
  __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    const __m512i high = _mm512_loadu_si512(rows.dots[0][block][row]);
    const __m512i low = _mm512_loadu_si512(rows.dots[1][block][row]);
    const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_loadu_ps(weights.scale[block]), sum);
  }
  return _mm512_fmadd_ps(_mm512_mul_ps(sum, _mm512_set1_ps(0x1p105F)), _mm512_set1_ps(x.scale),
                         total);
}

inline __m512 add_row(
    const Int8Record& x, const Weights& weights, const Rows& rows, int row, __m512 total) {
#pragma GCC unroll 4
  for (int block = 0; block < 4; ++block) {
    const __m512i dot = _mm512_loadu_si512(rows.dots[0][block][row]);
    const __m512 scale =
        _mm512_mul_ps(_mm512_loadu_ps(weights.scale[block]), _mm512_set1_ps(0x1p105F));
    total = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale),
                            _mm512_set1_ps(x.scale[block]), total);
  }
  return total;
}

// The product of a panel, in units of a superblock and a tile of rows of x: the operands of the
// next are prepared and the sums of the one before are added while one is multiplied.
template <typename Record>
struct PanelProduct {
  const std::uint8_t* panel;
  const Record* const* x;
  int num_x, tiles, rows_per_tile;
  float* sums;
  Weights weights[2];
  Rows rows[2];

  int first_row(std::int64_t unit) const { return static_cast<int>(unit % tiles) * rows_per_tile; }
  int count_rows(std::int64_t unit) const {
    const int left = num_x - first_row(unit);
    return left < rows_per_tile ? left : rows_per_tile;
  }

  void prepare(std::int64_t unit) {
    const std::int64_t superblock = unit / tiles;
    if (unit % tiles == 0)
      decode_superblock(panel + superblock * kSuperblockBytes, weights[superblock % 2]);
    const Record* const* row = x + first_row(unit);
    const int count = count_rows(unit);
    for (int t = 0; t < count; ++t)
      copy_row(row[t][superblock], rows[unit % 2], t);
  }

  void multiply(std::int64_t unit) {
    finish_stores();
    for (int plane = 0; plane < kPlanes<Record>; ++plane)
      multiply_plane(weights[unit / tiles % 2], plane, rows[unit % 2]);
  }

  void add(std::int64_t unit) {
    const std::int64_t superblock = unit / tiles;
    const int first = first_row(unit);
    const int count = count_rows(unit);
    for (int t = 0; t < count; ++t) {
      float* const total = sums + (first + t) * kPanelRows;
      _mm512_storeu_ps(total, add_row(x[first + t][superblock], weights[superblock % 2],
                                      rows[unit % 2], t, _mm512_loadu_ps(total)));
    }
  }
};

template <typename Record>
void dot_panel(const std::uint8_t* panel,
               std::int64_t num_superblocks,
               const Record* const* x,
               int num_x,
               float* sums) {
  // As many rows in each tile, so that none is nearly empty.
  const int tiles = (num_x + kTileRows - 1) / kTileRows;
  PanelProduct<Record> product;
  product.panel = panel;
  product.x = x;
  product.num_x = num_x;
  product.tiles = tiles;
  product.rows_per_tile = (num_x + tiles - 1) / tiles;
  product.sums = sums;
  const TileConfig config(static_cast<std::uint8_t>(product.rows_per_tile));
  _tile_loadconfig(&config);
  std::memset(sums, 0, static_cast<std::size_t>(num_x) * kPanelRows * sizeof(float));
  const std::int64_t num_units = num_superblocks * tiles;
  product.prepare(0);
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    product.multiply(unit);
    if (unit > 0) product.add(unit - 1);
    if (unit + 1 < num_units) product.prepare(unit + 1);
  }
  product.add(num_units - 1);
  _tile_release();
}

}  // namespace

void split15_dot_amx(const std::uint8_t* panel,
                     std::int64_t num_superblocks,
                     const Split15Record* const* x,
                     int num_x,
                     float* sums) {
  if (num_x <= kFewRows) return split15_dot_avx512(panel, num_superblocks, x, num_x, sums);
  dot_panel(panel, num_superblocks, x, num_x, sums);
}

void int8_dot_amx(const std::uint8_t* panel,
                  std::int64_t num_superblocks,
                  const Int8Record* const* x,
                  int num_x,
                  float* sums) {
  if (num_x <= kFewRows) return int8_dot_avx512(panel, num_superblocks, x, num_x, sums);
  dot_panel(panel, num_superblocks, x, num_x, sums);
}

}  // namespace halfbyte::cpu
