// SPDX-License-Identifier: Apache-2.0
//
// The fast packer of cuda_sm100 against the index functions of formats.
#include "kernels/cuda/sm100/prepare_weights.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "formats/pack.h"

namespace halfbyte::sm100 {
namespace {

struct Case {
  DataLayout layout;
  std::int64_t num_halves, half_rows, cols;
  LayoutPadding padding;
};

std::vector<Case> cases() {
  const DataLayout gated = DataLayout::kGateUpInterleave64Blocked128x4;
  const DataLayout plain = DataLayout::kBlocked128x4;
  return {{gated, 2, 64, 32, {1, 32}},    {gated, 2, 96, 144, {1, 32}},
          {gated, 2, 352, 160, {1, 32}},  {plain, 1, 80, 48, {1, 32}},
          {plain, 1, 160, 352, {1, 64}},  {plain, 1, 16, 16, {1, 32}},
          {plain, 1, 256, 1040, {1, 64}}, {plain, 1, 256, 128, {1, 64}},
          {gated, 2, 128, 64, {1, 32}}};  // the last two without padding
}

std::vector<std::uint8_t> random_bytes(std::int64_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : bytes)
    byte = static_cast<std::uint8_t>(random());
  return bytes;
}

struct Matrix {
  std::vector<std::uint8_t> codes, block_scale;
  std::vector<CanonicalMatrix> halves;
};

Matrix random_matrix(const Case& c, std::mt19937& random) {
  Matrix m;
  const auto half_codes = static_cast<std::size_t>(c.half_rows * c.cols / 2);
  const auto half_scales = static_cast<std::size_t>(c.half_rows * c.cols / 16);
  m.codes = random_bytes(c.num_halves * c.half_rows * c.cols / 2, random);
  m.block_scale = random_bytes(c.num_halves * c.half_rows * c.cols / 16, random);
  for (std::size_t half = 0; half < static_cast<std::size_t>(c.num_halves); ++half) {
    CanonicalMatrix view;
    view.rows = c.half_rows;
    view.cols = c.cols;
    view.codes = std::span(m.codes).subspan(half * half_codes, half_codes);
    view.block_scale = std::span(m.block_scale).subspan(half * half_scales, half_scales);
    m.halves.push_back(view);
  }
  return m;
}

// Every byte of one expert, padding too, from whatever the memory held.
TEST(PackExpert, WritesWhatTheIndexFunctionsSay) {
  std::mt19937 random(1);
  for (const Case& c : cases()) {
    const auto made = make_layout(c.layout, {1, c.num_halves, c.half_rows, c.cols}, c.padding);
    ASSERT_TRUE(made.ok());
    const Matrix m = random_matrix(c, random);
    const auto code_bytes = static_cast<std::size_t>(made->code_bytes());
    const auto scale_bytes = static_cast<std::size_t>(made->scale_bytes());
    std::vector<std::uint8_t> want_codes(code_bytes), want_scales(scale_bytes);
    pack_codes(*made, 0, m.codes, want_codes);
    pack_block_scales(*made, 0, m.block_scale, want_scales);
    std::vector<std::uint8_t> codes(code_bytes, 0xFF), scales(scale_bytes, 0x7F);
    pack_expert(*made, m.halves, codes, scales);
    EXPECT_EQ(codes, want_codes) << c.half_rows << " x " << c.cols;
    EXPECT_EQ(scales, want_scales) << c.half_rows << " x " << c.cols;
  }
}

}  // namespace
}  // namespace halfbyte::sm100
