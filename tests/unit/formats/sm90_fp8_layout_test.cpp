// SPDX-License-Identifier: Apache-2.0
#include "formats/sm90_fp8_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e4m3_fold.h"

namespace halfbyte::sm90 {
namespace {

std::vector<WeightShape> shapes() {
  return {{2, 1, 64, 64},   {1, 1, 128, 128},  {1, 1, 192, 320}, {1, 2, 320, 192},
          {2, 2, 96, 144},  {1, 1, 2880, 704}, {1, 2, 704, 240}, {3, 2, 16, 16},
          {1, 2, 240, 112}, {1, 1, 1856, 96}};
}

template <typename Visit>
void for_each_padded(const WeightLayout& layout, Visit visit) {
  for (std::int64_t e = 0; e < layout.shape.num_experts; ++e) {
    for (int half = 0; half < layout.shape.num_halves; ++half) {
      for (std::int64_t row = 0; row < layout.padded_half_rows(); ++row) {
        for (std::int64_t col = 0; col < layout.padded_cols(); ++col)
          visit(Element{e, half, row, col});
      }
    }
  }
}

// The padded index domain and the bits of the array are in one-to-one correspondence, and the
// inverse finds the element.
TEST(Sm90Fp8Layout, HitsEveryBitOnceAndIsInvertible) {
  for (const WeightShape& shape : shapes()) {
    const WeightLayout layout = fp8_layout(shape);
    EXPECT_EQ(layout.padded_cols() % kFp8BlockCols, 0);
    std::vector<std::uint8_t> hit(static_cast<std::size_t>(layout.bytes()));
    int wrong = 0;
    for_each_padded(layout, [&](const Element& element) {
      const CodeWord word = locate_fp8_code(layout, element);
      const std::uint32_t bits = place_fp8_code(word.code, 15);
      for (std::size_t b = 0; b < 4; ++b) {
        std::uint8_t& byte = hit[static_cast<std::size_t>(word.byte) + b];
        const auto mask = static_cast<std::uint8_t>(bits >> (8 * b));
        wrong += (byte & mask) != 0 ? 1 : 0;
        byte = static_cast<std::uint8_t>(byte | mask);
      }
      Element first = fp8_owner_of(layout, word.byte).element;
      first.col += word.code;
      wrong += first != element ? 1 : 0;
      if (element.col % 16 != 0) return;
      const std::int64_t scale = locate_scale(layout, element);
      wrong += hit[static_cast<std::size_t>(scale)] != 0 ? 1 : 0;
      hit[static_cast<std::size_t>(scale)] = 0xFF;
      wrong += fp8_owner_of(layout, scale).element != element ? 1 : 0;
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(std::count(hit.begin(), hit.end(), 0xFF), layout.bytes());
  }
}

TEST(Sm90Fp8Layout, CodesAreReadAsPlaced) {
  for (int code = 0; code < 8; ++code) {
    for (unsigned value = 0; value < 16; ++value) {
      const std::uint32_t others = place_fp8_code((code + 3) % 8, 11);
      EXPECT_EQ(read_fp8_code(place_fp8_code(code, value) | others, code), value);
    }
  }
}

float table_value(std::uint8_t scale, unsigned code) {
  const Fp8Table table = fp8_table(scale);
  const std::uint32_t word = (code & 4U) != 0 ? table.high : table.low;
  const float magnitude = e4m3_to_f32(static_cast<std::uint8_t>(word >> (8 * (code & 3U))));
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

// What the reference folds a row to (one scale at its top, every other below it in turn) is what
// the stored scale and code mean, wherever the scale is within the window; below it the error is
// half the widest step of the smallest scale, beside the reference's own rounding.
TEST(Sm90Fp8Layout, FoldsAsTheReferenceDoes) {
  for (int top = 1; top < 0x7F; ++top) {
    const int exponent = fold_exponent(static_cast<std::uint8_t>(top));
    for (int low = 0; low <= top; ++low) {
      std::vector<std::uint8_t> codes;
      for (unsigned c = 0; c < 32; c += 2)
        codes.push_back(static_cast<std::uint8_t>(c % 16 | (c + 1) % 16 << 4));
      const std::uint8_t scales[] = {static_cast<std::uint8_t>(top),
                                     static_cast<std::uint8_t>(low)};
      std::vector<std::uint8_t> want(32);
      EXPECT_EQ(fold_row_to_e4m3(codes.data(), scales, 32, want.data()).exponent, exponent);
      for (std::size_t i = 0; i < 32; ++i) {
        const FoldedScale scale = fold_scale(scales[i / 16], exponent);
        const unsigned code = scales[i / 16] == 0 ? 0U : static_cast<unsigned>(i % 16);
        const float got = table_value(scale.byte, fold_code(code, scale.steps_below));
        if (scale.steps_below == 0) {
          EXPECT_EQ(got, e4m3_to_f32(want[i])) << top << " " << low << " code " << code;
        } else {
          EXPECT_LE(std::abs(got - e4m3_to_f32(want[i])), 0x1p-5F + 0x1p-10F) << top << " " << low;
        }
      }
    }
  }
}

TEST(Sm90Fp8Layout, TheLargestScaleOfARowIsAtTheTop) {
  for (int top = 1; top < 0x7F; ++top) {
    const auto byte = static_cast<std::uint8_t>(top);
    const int scale = fold_scale(byte, fold_exponent(byte)).byte & 127;
    EXPECT_GE(scale, 98);
    EXPECT_LE(scale, kFp8MaxScale);
  }
  EXPECT_EQ(fold_exponent(0), 0);
}

// PTX ISA, m64k32 of 8-bit values: register a(2h + i) of lane 4r + q holds A[r + 8i][4q + 16h ..
// + 3], the lowest column in the lowest byte. Column 4q + 16h + c of step s is logical 16q + 8s +
// 4h + c. Checked for random codes over a slab.
TEST(Sm90Fp8Layout, WordsAreTheTensorCoresFragments) {
  const WeightLayout layout = fp8_layout({1, 1, 128, 256});
  std::mt19937 random(3);
  std::vector<unsigned> codes(128 * 256);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(layout.bytes() / 4));
  for_each_padded(layout, [&](const Element& element) {
    unsigned& code = codes[static_cast<std::size_t>(element.row * 256 + element.col)];
    code = random() % 16;
    const CodeWord word = locate_fp8_code(layout, element);
    words[static_cast<std::size_t>(word.byte / 4)] |= place_fp8_code(word.code, code);
  });
  for (std::int64_t i = 0; i < 128 * 256; ++i) {
    const std::int64_t row = i / 256;
    const std::int64_t col = i % 256;
    const std::int64_t q = col % 64 / 16;
    const std::int64_t step = col % 16 / 8;
    const std::int64_t h = col % 8 / 4;
    const std::int64_t byte = (col / 64 * kSlabCells + row / 32) * kCellBytes +
                              row % 32 / 16 * 512 + (row % 8 * 4 + q) * 16 +
                              (row % 16 / 8 * 2 + step) * 4;
    const std::uint32_t word = words[static_cast<std::size_t>(byte / 4)];
    EXPECT_EQ(read_fp8_code(word, static_cast<int>(4 * h + col % 4)),
              codes[static_cast<std::size_t>(i)]);
  }
}

}  // namespace
}  // namespace halfbyte::sm90
