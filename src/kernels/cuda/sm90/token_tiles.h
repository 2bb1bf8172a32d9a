// SPDX-License-Identifier: Apache-2.0
//
// The B operand of the grouped GEMMs as the images of their shared-memory tiles, so that a tile's
// columns are one bulk copy. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_TOKEN_TILES_H_
#define HALFBYTE_KERNELS_CUDA_SM90_TOKEN_TILES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/host_device.h"
#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// Position of column k inside its block of 64. Lane q of a fragment holds columns 16q .. 16q + 15
/// (formats/sm90_layout.h); the tensor core wants them at 2q, 2q + 1, 2q + 8, 2q + 9 of each step.
HALFBYTE_HOST_DEVICE constexpr int token_position(int k) {
  return k % 16 / 4 * 16 + k % 4 / 2 * 8 + k / 16 * 2 + k % 2;
}

/// Position of column k inside its block of 128 E4M3 values, likewise: lane q holds columns 16q ..
/// 16q + 15 of each 64, and the tensor core wants them at 4q .. 4q + 3 and 4q + 16 .. 4q + 19 of
/// each step (formats/sm90_fp8_layout.h).
HALFBYTE_HOST_DEVICE constexpr int fp8_token_position(int k) {
  return k / 64 * 64 + k % 16 / 4 * 16 + k % 64 / 16 * 4 + k % 4;
}

/// Tiles of up to `tile_tokens` tokens, expert by expert; an expert has as few as hold its rows,
/// with equally many in each but the last, a multiple of 8. A tile is [blocks][tile_tokens] rows of
/// 128 bytes: 64 columns in bf16, 128 in E4M3. The 16-byte chunks of a row are swizzled.
struct TokenTiles {
  int tile_tokens = 0;
  std::int64_t cols = 0;  // a multiple of a block's
  int col_bytes = 2;

  /// Tokens of the product that takes a tile of `rows`: those past its last token are zeros.
  HALFBYTE_HOST_DEVICE constexpr int width(int rows) const {
    const int narrowest = tile_tokens / (col_bytes == 1 && tile_tokens == 64 ? 4 : 2);
    const int whole = (rows + 15) / 16 * 16;
    return whole < narrowest ? narrowest : whole;
  }
  /// Tiles of any distribution of `max_routes` routes over `num_experts` experts, at most.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t max_tiles(std::int64_t max_routes,
                                                        std::int64_t num_experts) const {
    return max_routes < num_experts ? max_routes : max_routes / tile_tokens + num_experts;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t tile_bytes() const {
    return tile_tokens * cols * col_bytes;
  }
  /// Byte of chunk `chunk` of block `block`, token `token`.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t chunk_offset(std::int64_t tile,
                                                           std::int64_t block,
                                                           int token,
                                                           int chunk) const {
    return tile * tile_bytes() + (block * tile_tokens + token) * 128 + ((chunk ^ (token & 7)) << 4);
  }
  /// Byte of column `col` of bf16.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t offset(std::int64_t tile,
                                                     int token,
                                                     std::int64_t col) const {
    const int position = token_position(static_cast<int>(col % 64));
    return chunk_offset(tile, col / 64, token, position / 8) + position % 8 * 2;
  }
  /// Byte of column `col` of E4M3.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t fp8_offset(std::int64_t tile,
                                                         int token,
                                                         std::int64_t col) const {
    const int position = fp8_token_position(static_cast<int>(col % 128));
    return chunk_offset(tile, col / 128, token, position / 16) + position % 16;
  }
  /// Index of the scale of columns [128 * block, 128 * block + 128) of E4M3. Lane q of a fragment
  /// has tokens 2q and 2q + 1 of each eight: those of sixteen are neighbours.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t scale_index(std::int64_t tile,
                                                          std::int64_t block,
                                                          int token) const {
    const int position = token / 16 * 16 + token % 8 / 2 * 4 + token % 16 / 8 * 2 + token % 2;
    return (tile * (cols / 128) + block) * tile_tokens + position;
  }
};

/// Bytes of the tiles of any distribution of `max_routes` routes over `num_experts` experts, for
/// the one of `tile_tokens` that needs most.
inline std::size_t most_tile_bytes(std::span<const int> tile_tokens,
                                   std::int64_t cols,
                                   int col_bytes,
                                   std::int64_t max_routes,
                                   std::int64_t num_experts) {
  std::int64_t most = 0;
  for (const int tokens : tile_tokens) {
    const TokenTiles tiles = {tokens, cols, col_bytes};
    most = std::max(most, tiles.max_tiles(max_routes, num_experts) * tiles.tile_bytes());
  }
  return static_cast<std::size_t>(most);
}

struct GatherTokensArgs {
  const void* x = nullptr;                      // bf16 [tokens, hidden_size]
  const std::int32_t* route_row = nullptr;      // [routes]: row of x; null: row r of route r
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  void* dst = nullptr;                          // TokenTiles of hidden_size rounded up to 64
};

struct QuantizeTokensArgs {
  const void* x = nullptr;  // bf16 or fp32 [tokens, cols]
  bool f32 = false;
  const std::int32_t* route_row = nullptr;      // [routes]: row of x; null: row r of route r
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  std::uint8_t* dst = nullptr;                  // TokenTiles of a byte a column, cols padded to
                                                // kFp8BlockCols
  float* scale = nullptr;                       // TokenTiles::scale_index
};

/// Rows of E4M3 with a scale per 128 columns, bit for bit quantize_row_to_e4m3
/// (formats/e4m3_fold.h). Enqueues and returns; padding as below. `cols`: a multiple of 16.
Status launch_quantize_tokens(int num_experts,
                              std::int64_t max_routes,
                              std::int64_t cols,
                              int tile_tokens,
                              const QuantizeTokensArgs& args,
                              CUstream_st* stream);

/// Enqueues and returns. Padding columns are zero, and so are rows past a tile's last token up to
/// the width; others are not written.
Status launch_gather_tokens(int num_experts,
                            std::int64_t max_routes,
                            std::int64_t hidden_size,
                            int tile_tokens,
                            const GatherTokensArgs& args,
                            CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_TOKEN_TILES_H_
