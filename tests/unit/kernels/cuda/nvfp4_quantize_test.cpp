// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA kernels compute with, on the host: the bits of formats/nvfp4 and of the reference.
#include "kernels/cuda/common/nvfp4_quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/reference/activation.h"

namespace halfbyte::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Values whose bits are spread evenly: every exponent, both signs, NaN and infinities among them.
std::vector<float> values_of_every_size(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return values;
}

// The borders between codes, and the values beside them.
TEST(EncodeE2m1, HasTheBitsOfFormats) {
  std::vector<float> values = values_of_every_size(20000, 1);
  for (const float border : {0.0F, 0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 6.0F}) {
    for (const float v : {border, std::nextafter(border, 9.0F), std::nextafter(border, -9.0F)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  for (const float value : values) {
    if (std::isnan(value)) continue;
    EXPECT_EQ(encode_e2m1(value), f32_to_e2m1(value)) << value;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(round_e2m1(value)),
              std::bit_cast<std::uint32_t>(e2m1_to_f32(f32_to_e2m1(value))))
        << value;
  }
}

TEST(EncodeE4m3, HasTheBitsOfFormats) {
  for (float value : values_of_every_size(20000, 2)) {
    value = std::fabs(value);
    if (std::isnan(value)) continue;
    EXPECT_EQ(encode_e4m3(value), f32_to_e4m3(value)) << value;
  }
  // Every border between two codes, which is exact in fp32.
  for (std::uint8_t byte = 0; byte < kE4m3MaxBits; ++byte) {
    const float border = (e4m3_to_f32(byte) + e4m3_to_f32(static_cast<std::uint8_t>(byte + 1))) / 2;
    EXPECT_EQ(encode_e4m3(border), f32_to_e4m3(border)) << int{byte};
    EXPECT_EQ(decode_e4m3(byte), e4m3_to_f32(byte)) << int{byte};
  }
}

void expect_block_of_formats(const float (&x)[kNvfp4Block], float s) {
  std::array<std::uint8_t, 8> codes;
  std::uint8_t scale = 0;
  quantize_activations(x, 1, kNvfp4Block, s, codes.data(), &scale);
  const QuantizedBlock block = quantize_block(x, make_quantize_scale(s));
  EXPECT_EQ(block.scale, scale) << s;
  EXPECT_EQ(std::memcmp(block.codes, codes.data(), codes.size()), 0) << s;
  // The same on the grid, in bf16.
  float want[kNvfp4Block];
  decode_nvfp4_row(codes.data(), &scale, kNvfp4Block, want);
  const BlockScale shared = make_block_scale(x, make_quantize_scale(s));
  for (int i = 0; i < kNvfp4Block; i += 2) {
    const std::uint32_t pair = grid_pair(grid_value(x[i], shared), grid_value(x[i + 1], shared));
    for (int j = 0; j < 2; ++j) {
      const float got = std::bit_cast<float>(pair >> (16 * j) << 16);
      EXPECT_TRUE(got == want[i + j] || (std::isnan(got) && std::isnan(want[i + j])))
          << s << ": got " << got << ", want " << want[i + j];
    }
  }
}

// nvfp4-moe 5.2's first examples are among them: formats has them all.
TEST(QuantizeBlock, HasTheBitsOfFormats) {
  const float example[16] = {6,     .25F, .75F, 1.25F, 1.75F, 2.5F,   3.5F,  5,
                             -.25F, -.3F, 0,    -6,    .26F,  -5.01F, 2.49F, .1F};
  expect_block_of_formats(example, 1.0F / 64);
  std::mt19937 random(3);
  for (const float spread : {1e-30F, 1e-9F, 1e-3F, 1.0F, 40.0F, 1e9F, 1e30F}) {
    std::normal_distribution<float> normal(0.0F, spread);
    for (const float s : {0x1p-20F, 0.01F, 1.0F, 3.0F / 2688, 1e12F, 1.4e-45F}) {
      for (int i = 0; i < 20; ++i) {
        float x[16];
        for (float& value : x)
          value = random() % 8 == 0 ? 0.0F : normal(random);
        expect_block_of_formats(x, s);
      }
    }
  }
}

TEST(QuantizeBlock, MarksABlockThatIsNotFinite) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const float s : {0.0F, 1.0F}) {
      float x[16] = {1, 2, 3};
      x[15] = bad;
      expect_block_of_formats(x, s);
      EXPECT_EQ(quantize_block(x, make_quantize_scale(s)).scale, 0x7FU);
    }
  }
}

TEST(QuantizeBlock, OfAScaleOfZeroIsZero) {
  const float x[16] = {1e-40F, -1e-41F};
  expect_block_of_formats(x, 0.0F);
}

// nvfp4-moe 3, w4a4_dynamic: non-finite values are left out; below 2^-100 the row is empty.
TEST(RowRange, HasTheScaleOfFormats) {
  const std::vector<std::vector<float>> rows = {
      {0, 0, 0},    {1, -3, .7F},        {0x1p-101F, 0},    {0x1p-100F, 0}, {kNan, kInfinity},
      {kNan, 2.0F}, {-kInfinity, -5e3F}, {1e-45F, -1e-45F}, {3e38F, -1.0F}};
  for (const std::vector<float>& row : rows) {
    RowRange range;
    for (const float value : row)
      range.add(value);
    EXPECT_EQ(range.scale(), dynamic_row_scale(row.data(), std::ssize(row))) << row[0];
  }
}

// nvfp4-moe 4.3.
TEST(RowAlpha, DividesByTheEncodeScale) {
  EXPECT_EQ(row_alpha(0.3F, 0.0F), 0.0F);
  EXPECT_EQ(row_alpha(0.3F, 0.7F), 0.3F / (1.0F / 0.7F));
}

std::vector<ActivationSpec> every_activation() {
  return {{ActivationFunction::kSwiglu},
          {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 7.0F},
          {ActivationFunction::kSwigluClamped, 1.0F, 0.0F, kInfinity},
          {ActivationFunction::kRelu2},
          {ActivationFunction::kGegluTanh}};
}

void expect_reference(const ActivationSpec& spec, float g, float u) {
  const float want = reference::activate(spec, g, u);
  const float got = portable_activate(spec, g, u);
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << g << " " << u;
  } else {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
        << g << " " << u;
  }
}

TEST(PortableActivate, HasTheBitsOfTheReference) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 8.0F);
  const std::vector<float> g = values_of_every_size(5000, 5);
  const std::vector<float> u = values_of_every_size(5000, 6);
  for (const ActivationSpec& spec : every_activation()) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      expect_reference(spec, g[i], u[i]);
      expect_reference(spec, normal(random), normal(random));
    }
    for (const float edge :
         {-kInfinity, -88.0F, -87.0F, -0.0F, 0.0F, 87.0F, 88.0F, kInfinity, kNan}) {
      for (const float other : {-kInfinity, -1.0F, 0.0F, 1.0F, kInfinity, kNan}) {
        expect_reference(spec, edge, other);
        expect_reference(spec, other, edge);
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::cuda
