// SPDX-License-Identifier: Apache-2.0
//
// The AMX kernels on any machine: tiles as Intel's manual defines them, one thread's.
#include <array>
#include <cstddef>

#include "emulated_avx512.h"

namespace halfbyte::emulated {
namespace {

struct Tile {
  int rows = 0, row_bytes = 0;
  std::array<std::array<std::uint8_t, 64>, 16> bytes{};
};
std::array<Tile, 8> tiles;

// Byte 0 is the palette; row sizes are 16 bits each from byte 16 on, rows bytes from 48 on.
void load_config(const void* config) {
  std::uint8_t bytes[64];
  std::memcpy(bytes, config, sizeof(bytes));
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    tiles[i] = {};
    tiles[i].row_bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
    tiles[i].rows = bytes[0] == 1 ? bytes[48 + i] : 0;
  }
}

void load_tile(std::size_t t, const void* src, std::size_t stride) {
  for (int row = 0; row < tiles[t].rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    tiles[t].bytes[r] = {};
    std::memcpy(tiles[t].bytes[r].data(), static_cast<const std::byte*>(src) + r * stride,
                static_cast<std::size_t>(tiles[t].row_bytes));
  }
}

void store_tile(std::size_t t, void* dst, std::size_t stride) {
  for (int row = 0; row < tiles[t].rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    std::memcpy(static_cast<std::byte*>(dst) + r * stride, tiles[t].bytes[r].data(),
                static_cast<std::size_t>(tiles[t].row_bytes));
  }
}

void zero_tile(std::size_t t) {
  tiles[t].bytes = {};
}

std::int32_t word_of(const Tile& tile, std::size_t row, std::size_t word) {
  std::int32_t value = 0;
  std::memcpy(&value, tile.bytes[row].data() + 4 * word, sizeof(value));
  return value;
}

std::int32_t byte_of(const Tile& tile, std::size_t row, std::size_t byte) {
  return static_cast<std::int8_t>(tile.bytes[row][byte]);
}

// dst[m][n] += the four products of bytes of each a[m][k] and b[k][n], k over four bytes at a time.
void multiply_signed(std::size_t dst, std::size_t a, std::size_t b) {
  Tile& sums = tiles[dst];
  for (std::size_t m = 0; m < static_cast<std::size_t>(sums.rows); ++m) {
    for (std::size_t n = 0; n < static_cast<std::size_t>(sums.row_bytes / 4); ++n) {
      std::int32_t sum = word_of(sums, m, n);
      for (std::size_t k = 0; k < static_cast<std::size_t>(tiles[a].row_bytes / 4); ++k) {
        for (std::size_t j = 0; j < 4; ++j)
          sum += byte_of(tiles[a], m, 4 * k + j) * byte_of(tiles[b], k, 4 * n + j);
      }
      std::memcpy(sums.bytes[m].data() + 4 * n, &sum, sizeof(sum));
    }
  }
}

}  // namespace
}  // namespace halfbyte::emulated

#undef _tile_loadconfig
#define _tile_loadconfig ::halfbyte::emulated::load_config
#undef _tile_loadd
#define _tile_loadd ::halfbyte::emulated::load_tile
#undef _tile_stored
#define _tile_stored ::halfbyte::emulated::store_tile
#undef _tile_zero
#define _tile_zero ::halfbyte::emulated::zero_tile
#undef _tile_dpbssd
#define _tile_dpbssd ::halfbyte::emulated::multiply_signed
#undef _tile_release
#define _tile_release() ::halfbyte::emulated::load_config(std::array<std::uint8_t, 64>{}.data())
#define split15_dot_amx split15_dot_amx_emulated
#define int8_dot_amx int8_dot_amx_emulated
#include "kernels/cpu/integer_amx.cpp"
