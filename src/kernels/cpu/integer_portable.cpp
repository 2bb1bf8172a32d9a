// SPDX-License-Identifier: Apache-2.0
//
// The integer kernels in plain C++. Sums of 16 products are exact integers and everything after
// them is written operation by operation, so every instruction set gives these bits.
#include <bit>
#include <cmath>
#include <cstring>

#include "formats/e2m1.h"
#include "kernels/cpu/integer_kernels.h"

namespace halfbyte::cpu {
namespace {

using Lanes = float[kPanelRows];

// 64 columns of a panel: 2 * e2m1, and the scales of 16 columns.
struct Superblock {
  std::int32_t weight[kSuperblockCols][kPanelRows];
  Lanes scale[4];
};

void decode_superblock(const std::uint8_t* src, Superblock& superblock) {
  const PanelShape shape{.rows = kPanelRows, .cols = kSuperblockCols};
  for (std::int64_t row = 0; row < kPanelRows; ++row) {
    for (std::int64_t col = 0; col < kSuperblockCols; ++col) {
      const CodePosition at = locate_panel_code(shape, row, col);
      const unsigned code = at.high_nibble ? src[at.byte] >> 4 : src[at.byte] & 15U;
      superblock.weight[col][row] = static_cast<std::int32_t>(kE2m1Values[code] * 2.0F);
    }
    for (std::int64_t block = 0; block < 4; ++block) {
      const std::uint32_t bits = src[locate_panel_scale(shape, row, block)];
      superblock.scale[block][row] = std::bit_cast<float>(bits << 20) * 0x1p105F;
    }
  }
}

void add_products(const Superblock& superblock,
                  std::int64_t col,
                  std::int32_t q,
                  std::int32_t (&dot)[kPanelRows]) {
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    dot[row] += superblock.weight[col][row] * q;
}

void add_superblock(const Superblock& superblock, const Split15Record& x, float* total) {
  Lanes sum = {};
  for (std::int64_t block = 0; block < 4; ++block) {
    std::int32_t dot[kPanelRows] = {};
    for (std::int64_t col = block * kScaleCols; col < (block + 1) * kScaleCols; ++col)
      add_products(superblock, col, x.high[col] * 128 + x.low[col], dot);
    for (std::int64_t row = 0; row < kPanelRows; ++row)
      sum[row] = std::fma(static_cast<float>(dot[row]), superblock.scale[block][row], sum[row]);
  }
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    total[row] = std::fma(sum[row], x.scale, total[row]);
}

void add_superblock(const Superblock& superblock, const Int8Record& x, float* total) {
  for (std::int64_t block = 0; block < 4; ++block) {
    std::int32_t dot[kPanelRows] = {};
    for (std::int64_t col = block * kScaleCols; col < (block + 1) * kScaleCols; ++col)
      add_products(superblock, col, x.q[col], dot);
    for (std::int64_t row = 0; row < kPanelRows; ++row) {
      const float product = static_cast<float>(dot[row]) * superblock.scale[block][row];
      total[row] = std::fma(product, x.scale[block], total[row]);
    }
  }
}

template <typename Record>
void dot(const std::uint8_t* panel,
         std::int64_t num_superblocks,
         const Record* const* x,
         int num_x,
         float* sums) {
  std::memset(sums, 0, static_cast<std::size_t>(num_x) * sizeof(Lanes));
  Superblock superblock;
  for (std::int64_t i = 0; i < num_superblocks; ++i) {
    decode_superblock(panel + i * kSuperblockBytes, superblock);
    for (int t = 0; t < num_x; ++t)
      add_superblock(superblock, x[t][i], sums + t * kPanelRows);
  }
}

}  // namespace

void split15_dot_portable(const std::uint8_t* panel,
                          std::int64_t num_superblocks,
                          const Split15Record* const* x,
                          int num_x,
                          float* sums) {
  dot(panel, num_superblocks, x, num_x, sums);
}

void int8_dot_portable(const std::uint8_t* panel,
                       std::int64_t num_superblocks,
                       const Int8Record* const* x,
                       int num_x,
                       float* sums) {
  dot(panel, num_superblocks, x, num_x, sums);
}

}  // namespace halfbyte::cpu
