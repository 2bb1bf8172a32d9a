// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/panel_layout.h"
#include "unit/kernels/cpu/matrices.h"

namespace halfbyte::cpu {
namespace {

// Every nibble and scale byte of the padded matrix is named exactly once.
TEST(PanelLayout, CodesAndScalesCoverEveryByteOnce) {
  for (const auto& [rows, cols] : {std::pair{16, 64}, {17, 64}, {32, 144}, {1, 16}, {48, 192}}) {
    const PanelShape shape{.format = WeightFormat::kNvfp4, .rows = rows, .cols = cols};
    const std::int64_t bytes = shape.num_panels() * shape.panel_bytes();
    const std::int64_t padded_rows = round_up(rows, kPanelRows);
    const std::int64_t padded_cols = round_up(cols, kSuperblockCols);
    std::set<std::pair<std::int64_t, bool>> nibbles;
    for (std::int64_t row = 0; row < padded_rows; ++row) {
      for (std::int64_t col = 0; col < padded_cols; ++col) {
        const CodePosition at = locate_panel_code(shape, row, col);
        ASSERT_LT(at.byte, bytes);
        ASSERT_TRUE(nibbles.emplace(at.byte, at.high_nibble).second) << row << " " << col;
      }
      for (std::int64_t block = 0; block < padded_cols / kScaleCols; ++block) {
        const std::int64_t at = locate_panel_scale(shape, row, block);
        ASSERT_LT(at, bytes);
        ASSERT_TRUE(nibbles.emplace(at, false).second) << row << " block " << block;
        ASSERT_TRUE(nibbles.emplace(at, true).second) << row << " block " << block;
      }
    }
    EXPECT_EQ(std::ssize(nibbles), 2 * bytes) << rows << " x " << cols;
  }
}

TEST(PanelLayout, ElementsOfTheOtherFormatsDoNotOverlap) {
  for (const WeightFormat format :
       {WeightFormat::kFp8, WeightFormat::kBf16, WeightFormat::kF16, WeightFormat::kF32}) {
    const PanelShape shape{.format = format, .rows = 33, .cols = 50, .scale_block_cols = 16};
    const std::int64_t size = format == WeightFormat::kFp8   ? 1
                              : format == WeightFormat::kF32 ? 4
                                                             : 2;
    std::set<std::int64_t> bytes;
    for (std::int64_t row = 0; row < 33; ++row) {
      for (std::int64_t col = 0; col < 50; ++col) {
        for (std::int64_t i = 0; i < size; ++i)
          ASSERT_TRUE(bytes.insert(locate_panel_element(shape, row, col) + i).second);
      }
    }
    EXPECT_LT(*bytes.rbegin(), shape.num_panels() * shape.panel_bytes());
  }
}

// By hand from the layout's description: row 17 is lane 1 of panel 1; column 77 is in superblock 1,
// line 1, column 5 of the line.
TEST(PanelLayout, OneCodeAndOneScaleByHand) {
  const PanelShape shape{.format = WeightFormat::kNvfp4, .rows = 32, .cols = 128};
  EXPECT_EQ(shape.panel_bytes(), 2 * 576);
  EXPECT_EQ(locate_panel_code(shape, 17, 77),
            (CodePosition{.byte = 1152 + 576 + 64 + 64 + 4 + 1, .high_nibble = true}));
  EXPECT_EQ(locate_panel_scale(shape, 17, 6), 1152 + 576 + 2 * 16 + 1);
}

// The index function is the oracle of the packer, padding included.
TEST(PanelLayout, PackingPutsEveryCodeAndScaleWhereTheLayoutSays) {
  for (const auto& [rows, cols] : {std::pair{17, 144}, {32, 64}, {5, 16}}) {
    const test::OwnedMatrix matrix = test::random_matrix({.rows = rows, .cols = cols}, 1);
    const Result<PanelShape> shape = panel_shape(matrix.view);
    ASSERT_TRUE(shape.ok());
    const std::int64_t bytes = shape->num_panels() * shape->panel_bytes();
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(bytes), 0xFF);
    ASSERT_TRUE(pack_panels(matrix.view, *shape, packed.data(), shape->panel_bytes()).ok());
    std::vector<std::uint8_t> want(packed.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) {
        const CodePosition at = locate_panel_code(*shape, row, col);
        const unsigned code = e2m1_code_at(matrix.codes.data() + row * cols / 2, col);
        want[static_cast<std::size_t>(at.byte)] |=
            static_cast<std::uint8_t>(code << (at.high_nibble ? 4U : 0U));
      }
      for (std::int64_t block = 0; block < cols / 16; ++block) {
        want[static_cast<std::size_t>(locate_panel_scale(*shape, row, block))] =
            e4m3_to_ue5m3(matrix.block_scale[static_cast<std::size_t>(row * cols / 16 + block)]);
      }
    }
    EXPECT_EQ(packed, want) << rows << " x " << cols;
  }
}

// Every finite, positive E4M3 survives the re-encoding: bits << 20 is an fp32 2^105 times smaller.
TEST(Ue5m3, IsLosslessAndNeverADenormal) {
  for (unsigned bits = 0; bits < 0x7FU; ++bits) {
    const unsigned ue5m3 = e4m3_to_ue5m3(static_cast<std::uint8_t>(bits));
    const auto value = std::bit_cast<float>(ue5m3 << 20);
    EXPECT_EQ(value * 0x1p105F, e4m3_to_f32(static_cast<std::uint8_t>(bits))) << bits;
    EXPECT_TRUE(bits == 0 ? ue5m3 == 0 : value >= 0x1p-126F) << bits;
  }
}

}  // namespace
}  // namespace halfbyte::cpu
