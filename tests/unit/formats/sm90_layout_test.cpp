// SPDX-License-Identifier: Apache-2.0
#include "formats/sm90_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte::sm90 {
namespace {

// Sizes of real models, of shards, and with tails in both directions.
std::vector<WeightShape> shapes() {
  return {{2, 1, 64, 64},    {1, 1, 64, 128},  {2, 1, 128, 64},  {1, 1, 128, 128},
          {1, 1, 192, 320},  {1, 2, 320, 192}, {2, 2, 96, 144},  {1, 1, 2880, 704},
          {1, 2, 704, 2880}, {3, 2, 16, 16},   {1, 2, 240, 112}, {1, 1, 1856, 96}};
}

template <typename Visit>
void for_each_padded(const WeightLayout& layout, std::int64_t col_step, Visit visit) {
  for (std::int64_t e = 0; e < layout.shape.num_experts; ++e) {
    for (int half = 0; half < layout.shape.num_halves; ++half) {
      for (std::int64_t row = 0; row < layout.padded_half_rows(); ++row) {
        for (std::int64_t col = 0; col < layout.padded_cols(); col += col_step)
          visit(Element{e, half, row, col});
      }
    }
  }
}

// The padded index domain and the bits of the array are in one-to-one correspondence.
TEST(Sm90Layout, HitsEveryBitExactlyOnce) {
  for (const WeightShape& shape : shapes()) {
    const WeightLayout layout{shape};
    std::vector<std::uint8_t> hit(static_cast<std::size_t>(layout.bytes()));
    int doubled = 0;
    for_each_padded(layout, 1, [&](const Element& element) {
      const CodeWord word = locate_code(layout, element);
      for (const std::uint8_t bit : code_bits(word.code).bit) {
        std::uint8_t& byte = hit[static_cast<std::size_t>(word.byte + bit / 8)];
        const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
        doubled += (byte & mask) != 0 ? 1 : 0;
        byte = static_cast<std::uint8_t>(byte | mask);
      }
    });
    for_each_padded(layout, 16, [&](const Element& element) {
      std::uint8_t& byte = hit[static_cast<std::size_t>(locate_scale(layout, element))];
      doubled += byte != 0 ? 1 : 0;
      byte = 0xFF;
    });
    EXPECT_EQ(doubled, 0);
    EXPECT_EQ(std::count(hit.begin(), hit.end(), 0xFF), layout.bytes());
  }
}

// Index and inverse are each other's inverse on the whole padded domain.
TEST(Sm90Layout, InverseFindsTheElement) {
  for (const WeightShape& shape : shapes()) {
    const WeightLayout layout{shape};
    int wrong = 0;
    for_each_padded(layout, 1, [&](const Element& element) {
      const CodeWord word = locate_code(layout, element);
      const ByteOwner owner = owner_of(layout, word.byte);
      wrong += owner.is_scale || code_element(layout, owner.element, word.code) != element ? 1 : 0;
    });
    for_each_padded(layout, 16, [&](const Element& element) {
      const ByteOwner owner = owner_of(layout, locate_scale(layout, element));
      wrong += !owner.is_scale || owner.element != element ? 1 : 0;
    });
    EXPECT_EQ(wrong, 0);
  }
}

// Padding of each half: gate and up separately, never the fused pair.
TEST(Sm90Layout, PadsEachHalfByItself) {
  const WeightLayout gate_up{{1, 2, 96, 2880}};
  EXPECT_EQ(gate_up.padded_half_rows(), 128);
  EXPECT_EQ(gate_up.rows(), 256);
  EXPECT_EQ(gate_up.padded_cols(), 2880);
  const WeightLayout down{{1, 1, 2880, 96}};
  EXPECT_EQ(down.rows(), 2944);
  EXPECT_EQ(down.padded_cols(), 128);
}

// The value of every stored scale byte, read as the kernels read it, is the E4M3 value.
TEST(Sm90Layout, ScaleBytesAreExact) {
  for (int e4m3 = 1; e4m3 < 0x7F; ++e4m3) {
    const std::uint8_t byte = encode_scale(static_cast<std::uint8_t>(e4m3));
    EXPECT_GE(byte, 96);
    EXPECT_LE(byte, 238);
    EXPECT_EQ(decode_scale(byte), e4m3);
    const auto image = static_cast<std::uint16_t>(0x7000U | static_cast<unsigned>(byte) << 4);
    EXPECT_EQ(static_cast<double>(bf16_to_f32(image)) * 0x1p-118,
              static_cast<double>(e4m3_to_f32(static_cast<std::uint8_t>(e4m3))));
  }
  EXPECT_EQ(encode_scale(0), 0);
  EXPECT_EQ(decode_scale(0), 0);
}

// What the kernels' decoder does to a word, on the host.
struct Registers {
  std::uint32_t a[4];
};
Registers extract(std::uint32_t w) {
  constexpr std::uint32_t kMask = 0x81C081C0U;
  return {{w & kMask, std::rotr(w, 6) & kMask, std::rotr(w, 3) & kMask,
           ((w & 0x001B001BU) * 0x1084U) & kMask}};
}

// PTX ISA, m16n8k16: register a(2h + i) of lane 4r + q holds A[r + 8i][2q + 8h] in its lower half
// and the next column in its upper half. Physical column 2q + 8h + c of step s is logical 16q + 4s
// + 2h
// + c. Checked for random codes over a whole cell.
TEST(Sm90Layout, WordsAreTheTensorCoresFragments) {
  const WeightLayout layout{{1, 1, 128, 64}};
  std::mt19937 random(3);
  std::vector<std::uint8_t> codes(128 * 64);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(layout.bytes() / 4));
  for_each_padded(layout, 1, [&](const Element& element) {
    const unsigned code = random() % 16;
    codes[static_cast<std::size_t>(element.row * 64 + element.col)] =
        static_cast<std::uint8_t>(code);
    const CodeWord word = locate_code(layout, element);
    words[static_cast<std::size_t>(word.byte / 4)] |= place_code(word.code, code);
  });
  for (std::int64_t tile = 0; tile < 8; ++tile) {
    for (std::int64_t index = 0; index < 32 * 4; ++index) {
      const std::int64_t lane = index / 4;
      const std::int64_t step = index % 4;
      const std::int64_t byte = tile / 2 * kCellBytes + tile % 2 * 512 + lane * 16 + step * 4;
      const Registers registers = extract(words[static_cast<std::size_t>(byte / 4)]);
      for (int reg = 0; reg < 4; ++reg) {
        for (int upper = 0; upper < 2; ++upper) {
          const std::int64_t row = tile * 16 + lane / 4 + reg % 2 * 8;
          const std::int64_t col = lane % 4 * 16 + step * 4 + reg / 2 * 2 + upper;
          const auto half = static_cast<std::uint16_t>(registers.a[reg] >> (16 * upper));
          const float want = e2m1_to_f32(codes[static_cast<std::size_t>(row * 64 + col)]);
          EXPECT_EQ(std::ldexp(bf16_to_f32(half), 126), want);
        }
      }
    }
  }
}

TEST(Sm90Layout, ReadsBackWhatItPlaces) {
  for (int code = 0; code < 8; ++code) {
    for (unsigned value = 0; value < 16; ++value)
      EXPECT_EQ(read_code(place_code(code, value), code), value);
  }
}

}  // namespace
}  // namespace halfbyte::sm90
