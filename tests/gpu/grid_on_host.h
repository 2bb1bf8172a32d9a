// SPDX-License-Identifier: Apache-2.0
//
// What the w4a4 modes make of activations, by the quantiser of formats: rows on the NVFP4 grid, in
// bf16.
#ifndef HALFBYTE_TESTS_GPU_GRID_ON_HOST_H_
#define HALFBYTE_TESTS_GPU_GRID_ON_HOST_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/bf16.h"
#include "formats/nvfp4.h"
#include "kernels/cuda/sm90/token_tiles.h"
#include "routing.h"

namespace halfbyte::test {

struct GridRow {
  std::vector<std::uint16_t> values;       // bf16: code * block scale
  std::vector<std::uint8_t> block_scales;  // E4M3
};

inline GridRow grid_row(std::span<const float> row, float s) {
  GridRow grid;
  std::vector<std::uint8_t> codes(row.size() / 2);
  std::vector<float> values(row.size());
  grid.block_scales.resize(row.size() / 16);
  quantize_activations(row.data(), 1, std::ssize(row), s, codes.data(), grid.block_scales.data());
  decode_nvfp4_row(codes.data(), grid.block_scales.data(), std::ssize(row), values.data());
  for (const float value : values)
    grid.values.push_back(f32_to_bf16(value));
  return grid;
}

inline std::vector<float> widened(std::span<const std::uint16_t> row) {
  std::vector<float> values;
  for (const std::uint16_t bits : row)
    values.push_back(bf16_to_f32(bits));
  return values;
}

/// Elements that differ, where any NaN is as good as another.
inline std::int64_t count_different(std::span<const std::uint16_t> got,
                                    std::span<const std::uint16_t> want) {
  std::int64_t different = got.size() == want.size() ? 0 : std::ssize(want);
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const bool both_nan = std::isnan(bf16_to_f32(got[i])) && std::isnan(bf16_to_f32(want[i]));
    different += got[i] == want[i] || both_nan ? 0 : 1;
  }
  return different;
}

/// Calls visit(tile, token, route) for every row of tiles that a product reads; route -1: zeros.
template <typename Visit>
void for_each_tile_row(const sm90::TokenTiles& tiles, const HostRoutes& routes, Visit visit) {
  std::int64_t tile = 0;
  for (std::size_t e = 0; e < routes.expert_count.size(); ++e) {
    const std::int32_t count = routes.expert_count[e];
    const std::int32_t num_tiles = (count + tiles.tile_tokens - 1) / tiles.tile_tokens;
    const std::int32_t rows =
        num_tiles == 0 ? 0 : ((count + num_tiles - 1) / num_tiles + 7) / 8 * 8;
    for (std::int32_t t = 0; t < num_tiles; ++t, ++tile) {
      for (int token = 0; token < tiles.width(rows); ++token) {
        const std::int32_t in_expert = t * rows + token;
        const bool present = token < rows && in_expert < count;
        visit(tile, token, present ? routes.expert_offset[e] + in_expert : std::int64_t{-1});
      }
    }
  }
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_GRID_ON_HOST_H_
