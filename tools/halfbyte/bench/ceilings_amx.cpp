// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <atomic>
#include <cstdint>

#include "bench/ceiling_loops.h"

namespace halfbyte::tool {
namespace {

// Eight tiles as large as they can be.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t reserved[15] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

// Four products of tiles a step, each with sums of its own.
std::int64_t multiply_amx(std::int64_t steps) {
  const TileConfig config;
  alignas(64) std::int32_t sums[16 * 16] = {};
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler does not see tiles' loads
  _tile_loadconfig(&config);
  _tile_loadd(4, sums, 64);
  _tile_loadd(5, sums, 64);
  _tile_loadd(6, sums, 64);
  _tile_loadd(7, sums, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t step = 0; step < steps; ++step) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  return sums[0];
}

}  // namespace halfbyte::tool
