// SPDX-License-Identifier: Apache-2.0
//
// Every layout is a bijection between its padded coordinates and its bytes; the vectors are those
// of docs/formats.md.
#include "formats/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "formats/pack.h"

namespace halfbyte {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

WeightLayout layout_of(DataLayout layout, WeightShape shape, LayoutPadding padding = {}) {
  Result<WeightLayout> made = make_layout(layout, shape, padding);
  EXPECT_TRUE(made.ok());
  return made.ok() ? *made : WeightLayout();
}

std::vector<WeightShape> small_shapes(DataLayout layout) {
  std::vector<WeightShape> shapes = {
      {1, 2, 64, 32}, {2, 2, 128, 48}, {3, 2, 16, 144}, {1, 2, 352, 64}};
  if (layout == DataLayout::kLinear || layout == DataLayout::kBlocked128x4) {
    shapes.push_back({2, 1, 160, 80});
    shapes.push_back({1, 1, 1, 16});
  }
  return shapes;
}

void expect_codes_are_a_bijection(const WeightLayout& layout) {
  std::vector<int> hits(static_cast<std::size_t>(2 * layout.code_bytes()), 0);
  for (std::int64_t expert = 0; expert < layout.shape.num_experts; ++expert) {
    for (std::int64_t row = 0; row < layout.code_rows(); ++row) {
      for (std::int64_t col = 0; col < layout.padded_cols; ++col) {
        const CodeLocation location = locate_padded_code(layout, expert, row, col);
        ASSERT_LT(location.byte, layout.code_bytes());
        ++hits[static_cast<std::size_t>(2 * location.byte + location.shift / 4)];
        const LayoutElement element = code_element(layout, location);
        ASSERT_EQ(element.expert_idx, expert);
        ASSERT_EQ(element.col, col);
        if (element.is_padding) {
          ASSERT_EQ(element.row, row);
        } else {
          ASSERT_EQ(locate_code(layout, expert, element.row, col), location);
        }
      }
    }
  }
  EXPECT_THAT(hits, Each(1));
}

void expect_scales_are_a_bijection(const WeightLayout& layout) {
  std::vector<int> hits(static_cast<std::size_t>(layout.scale_bytes()), 0);
  std::int64_t num_elements = 0;
  for (std::int64_t expert = 0; expert < layout.shape.num_experts; ++expert) {
    for (std::int64_t row = 0; row < layout.scale_rows; ++row) {
      for (std::int64_t group = 0; group < layout.scale_cols; ++group) {
        const std::int64_t byte = locate_padded_block_scale(layout, expert, row, group);
        ASSERT_LT(byte, layout.scale_bytes());
        ++hits[static_cast<std::size_t>(byte)];
        const LayoutElement element = block_scale_element(layout, byte);
        ASSERT_EQ(element.expert_idx, expert);
        ASSERT_EQ(element.col, group);
        if (element.is_padding) continue;
        ++num_elements;
        ASSERT_EQ(locate_block_scale(layout, expert, element.row, group), byte);
      }
    }
  }
  EXPECT_THAT(hits, Each(1));
  EXPECT_EQ(num_elements, layout.shape.num_experts * layout.rows() * layout.shape.cols / 16);
}

class EveryLayout : public ::testing::TestWithParam<DataLayout> {};

TEST_P(EveryLayout, MapsPaddedCoordinatesToBytesOneToOne) {
  for (const WeightShape& shape : small_shapes(GetParam())) {
    for (const LayoutPadding padding : {LayoutPadding{1, 16}, LayoutPadding{128, 64}}) {
      const WeightLayout layout = layout_of(GetParam(), shape, padding);
      expect_codes_are_a_bijection(layout);
      expect_scales_are_a_bijection(layout);
    }
  }
}

TEST_P(EveryLayout, UnpackedIsWhatWasPackedAndPaddingIsZero) {
  for (const WeightShape& shape : small_shapes(GetParam())) {
    const WeightLayout layout = layout_of(GetParam(), shape, {1, 64});
    const auto count = static_cast<std::size_t>(layout.rows() * shape.cols);
    std::vector<std::uint8_t> codes(count / 2), scales(count / 16);
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>(0x11 + i % 0xDE);
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<std::uint8_t>(1 + i % 126);
    for (const int poison : {0x00, 0x7F, 0xFF}) {
      std::vector<std::uint8_t> packed(static_cast<std::size_t>(layout.code_bytes()),
                                       static_cast<std::uint8_t>(poison));
      std::vector<std::uint8_t> packed_scales(static_cast<std::size_t>(layout.scale_bytes()),
                                              static_cast<std::uint8_t>(poison));
      const std::int64_t expert = shape.num_experts - 1;
      pack_codes(layout, expert, codes, packed);
      pack_block_scales(layout, expert, scales, packed_scales);
      std::vector<std::uint8_t> back(codes.size()), back_scales(scales.size());
      unpack_codes(layout, expert, packed, back);
      unpack_block_scales(layout, expert, packed_scales, back_scales);
      EXPECT_EQ(back, codes);
      EXPECT_EQ(back_scales, scales);
      for (std::int64_t byte = expert * layout.scale_bytes_per_expert();
           byte < layout.scale_bytes(); ++byte) {
        if (block_scale_element(layout, byte).is_padding) {
          ASSERT_EQ(packed_scales[static_cast<std::size_t>(byte)], 0);
        }
      }
      for (std::int64_t byte = expert * layout.code_bytes_per_expert(); byte < layout.code_bytes();
           ++byte) {
        if (code_element(layout, {byte, 0}).is_padding) {
          ASSERT_EQ(packed[static_cast<std::size_t>(byte)], 0);
        }
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<DataLayout>& layout) {
  return layout_info(layout.param).name;
}
INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout, ::testing::ValuesIn(kAllLayouts), name_of);

TEST(LayoutInfo, NamesAreUniqueAndVersionsSet) {
  std::vector<std::string> names;
  for (const DataLayout layout : kAllLayouts) {
    EXPECT_GE(layout_info(layout).version, 1);
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(layout_info(layout).name)));
    names.emplace_back(layout_info(layout).name);
  }
}

TEST(Interleave64, RowsComeFromUpThenGate) {
  const std::vector<std::int64_t> stored = {0, 63, 64, 128, 191, 192};
  const std::vector<std::int64_t> source = {128, 191, 0, 192, 255, 64};
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(deinterleave_row_64(stored[i], 128), source[i]);
    EXPECT_EQ(interleave_row_64(source[i], 128), stored[i]);
  }
}

TEST(Interleave64, IsAPermutationForRealSizes) {
  for (const std::int64_t half : {64, 128, 768, 2048}) {
    std::vector<int> hits(static_cast<std::size_t>(2 * half), 0);
    for (std::int64_t row = 0; row < 2 * half; ++row) {
      const std::int64_t stored = interleave_row_64(row, half);
      ++hits[static_cast<std::size_t>(stored)];
      ASSERT_EQ(deinterleave_row_64(stored, half), row);
    }
    EXPECT_THAT(hits, Each(1));
  }
}

TEST(PairRows, GateAndUpAlternate) {
  // g0, u0, g1, u1, ..
  EXPECT_EQ(unpair_row(0, 4), 0);
  EXPECT_EQ(unpair_row(1, 4), 4);
  EXPECT_EQ(unpair_row(2, 4), 1);
  EXPECT_EQ(unpair_row(7, 4), 7);
  for (std::int64_t row = 0; row < 8; ++row)
    EXPECT_EQ(unpair_row(pair_row(row, 4), 4), row);
}

TEST(Blocked128x4, OffsetsAreThoseOfTheFormat) {
  EXPECT_EQ(blocked_128x4_offset(33, 5, 12), 533);
  EXPECT_EQ(blocked_128x4_offset(200, 47, 12), 11915);
  EXPECT_EQ(blocked_128x4_offset(0, 4, 12), 512);
  EXPECT_EQ(blocked_128x4_coordinate(11915, 12), (ScaleCoordinate{200, 47}));
}

TEST(Layout, IndexFunctionsAreConstantExpressions) {
  constexpr WeightLayout kLayout = {
      DataLayout::kGateUpInterleave64Blocked128x4, {1, 2, 64, 64}, 64, 64, 128, 4};
  static_assert(locate_code(kLayout, 0, 64, 3) == CodeLocation{1, 4});
  static_assert(locate_block_scale(kLayout, 0, 0, 0) == 8);  // stored row 64
  static_assert(!code_element(kLayout, {0, 0}).is_padding);
  EXPECT_EQ(kLayout.scale_bytes(), 512);
}

TEST(Layout, EachHalfIsPaddedByItself) {
  // I = 352 to 384: 0..351 gate, 352..383 zero, 384..735 up, 736..767 zero.
  const WeightLayout layout = layout_of(DataLayout::kLinear, {1, 2, 352, 16}, {384, 16});
  EXPECT_EQ(layout.code_rows(), 768);
  const auto row_at = [&](std::int64_t stored_row) {
    return code_element(layout, {stored_row * 8, 0});
  };
  EXPECT_EQ(row_at(351).row, 351);
  EXPECT_TRUE(row_at(352).is_padding);
  EXPECT_TRUE(row_at(383).is_padding);
  EXPECT_EQ(row_at(384).row, 352);
  EXPECT_EQ(row_at(735).row, 703);
  EXPECT_TRUE(row_at(736).is_padding);
}

TEST(Layout, OddHiddenSizesTakeTheirStridesFromThePaddedShape) {
  // H = 144 has 9 groups although its padded scale row has 12; H = 2880 has 180.
  const WeightLayout narrow = layout_of(DataLayout::kBlocked128x4, {2, 1, 128, 144});
  EXPECT_EQ(narrow.scale_cols, 12);
  EXPECT_EQ(narrow.scale_bytes_per_expert(), 128 * 12);
  EXPECT_TRUE(block_scale_element(narrow, locate_padded_block_scale(narrow, 1, 0, 9)).is_padding);
  const WeightLayout wide = layout_of(DataLayout::kBlocked128x4, {1, 1, 160, 2880});
  EXPECT_EQ(wide.scale_rows, 256);
  EXPECT_EQ(wide.scale_cols, 180);
}

TEST(Layout, OffsetsAre64Bit) {
  const WeightLayout layout = layout_of(DataLayout::kLinear, {512, 2, 4096, 8192});
  EXPECT_EQ(locate_code(layout, 511, 8191, 8191).byte, 512LL * 8192 * 4096 - 1);
}

TEST(Layout, ShapesThatCannotBeAreRefused) {
  const auto refused = [](DataLayout layout, WeightShape shape, LayoutPadding padding = {}) {
    return make_layout(layout, shape, padding).status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(DataLayout::kLinear, {1, 1, 16, 24}));
  EXPECT_TRUE(refused(DataLayout::kLinear, {1, 3, 16, 16}));
  EXPECT_TRUE(refused(DataLayout::kLinear, {-1, 1, 16, 16}));
  EXPECT_TRUE(refused(DataLayout::kLinear, {1, 1, 16, 16}, {1, 8}));
  EXPECT_TRUE(refused(DataLayout::kGateUpInterleave64, {1, 1, 64, 16}));
}

TEST(MmaScaleView, AddressesTheBlockedBytes) {
  const std::int64_t rows = 200;
  const std::int64_t cols = 9;
  const Result<MmaScaleView> view = make_mma_scale_view(3 * 256 * 12, rows, cols, 3);
  ASSERT_TRUE(view.ok());
  std::vector<int> hits(3 * 256 * 12, 0);
  const WeightLayout layout = layout_of(DataLayout::kBlocked128x4, {3, 1, rows, cols * 16});
  for (std::int64_t e = 0; e < 3; ++e) {
    for (std::int64_t r = 0; r < 256; ++r) {
      for (std::int64_t c = 0; c < 12; ++c) {
        const std::int64_t index[6] = {r % 32, r % 128 / 32, r / 128, c % 4, c / 4, e};
        const std::int64_t offset = view->offset(index);
        ASSERT_EQ(offset, locate_padded_block_scale(layout, e, r, c));
        ++hits[static_cast<std::size_t>(offset)];
      }
    }
  }
  EXPECT_THAT(hits, Each(1));
}

TEST(MmaScaleView, ACountThatDoesNotMatchIsRefused) {
  const Result<MmaScaleView> view = make_mma_scale_view(3 * 200 * 9, 200, 9, 3);
  ASSERT_FALSE(view.ok());
  EXPECT_EQ(view.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(view.status().message()), HasSubstr("want 9216"));
}

}  // namespace
}  // namespace halfbyte
