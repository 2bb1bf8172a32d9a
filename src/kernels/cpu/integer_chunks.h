// SPDX-License-Identifier: Apache-2.0
//
// How many rows of x pass a panel: a few superblocks are decoded into the first cache, and all rows
// pass them, a tile after the other, before the next few are. Everything has internal linkage: each
// unit is compiled with flags of its own.
#ifndef HALFBYTE_KERNELS_CPU_INTEGER_CHUNKS_H_
#define HALFBYTE_KERNELS_CPU_INTEGER_CHUNKS_H_

#include "kernels/cpu/integer_kernels.h"

namespace halfbyte::cpu {
namespace {

// 9 KiB of split15, 6 of int8: they stay in a first cache that two threads share, while x comes
// from the second.
constexpr std::int64_t kChunkSuperblocks = 4;

// `Block`: 16 columns of a panel in registers that are ready to multiply.
template <typename Block>
struct Chunk {
  const std::uint8_t* src = nullptr;
  std::int64_t first = 0;  // superblock
  std::int64_t count = 0;
  Block blocks[kChunkSuperblocks][4];
};

// The unit defines decode(superblock, block, Block&).
template <typename Block>
void decode_chunk(Chunk<Block>& chunk) {
  for (std::int64_t i = 0; i < chunk.count; ++i) {
#pragma GCC unroll 4
    for (int block = 0; block < 4; ++block)
      decode(chunk.src + i * kSuperblockBytes, block, chunk.blocks[i][block]);
  }
}

// add_tile(chunk, tile_idx, x, count, sums) adds up to kRowsPerTile rows' products to their sums.
template <int kRowsPerTile, typename Block, typename Record, typename AddTile>
void pass_chunks(const std::uint8_t* panel,
                 std::int64_t num_superblocks,
                 const Record* const* x,
                 int num_x,
                 float* sums,
                 const AddTile& add_tile) {
  __builtin_memset(sums, 0, static_cast<std::size_t>(num_x) * kPanelRows * sizeof(float));
  Chunk<Block> chunk;
  for (; chunk.first < num_superblocks; chunk.first += kChunkSuperblocks) {
    const std::int64_t left = num_superblocks - chunk.first;
    chunk.count = left < kChunkSuperblocks ? left : kChunkSuperblocks;
    chunk.src = panel + chunk.first * kSuperblockBytes;
    decode_chunk(chunk);
    for (int t = 0; t < num_x; t += kRowsPerTile) {
      const int count = num_x - t < kRowsPerTile ? num_x - t : kRowsPerTile;
      add_tile(chunk, t / kRowsPerTile, x + t, count, sums + t * kPanelRows);
    }
  }
}

}  // namespace
}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_INTEGER_CHUNKS_H_
