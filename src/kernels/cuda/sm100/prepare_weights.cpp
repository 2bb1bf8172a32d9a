// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm100/prepare_weights.h"

#include <algorithm>
#include <cstring>

namespace halfbyte::sm100 {
namespace {

constexpr std::int64_t kGroup = 16;

// Row `row` of the halves together, from row `from` of one of them.
void pack_row(const WeightLayout& layout,
              const CanonicalMatrix& half,
              std::int64_t from,
              std::int64_t row,
              std::uint8_t* codes,
              std::uint8_t* block_scale) {
  const std::int64_t groups = half.cols / kGroup;
  const std::uint8_t* const scales = half.block_scale.data() + from * groups;
  std::memcpy(codes + locate_code(layout, 0, row, 0).byte,
              half.codes.data() + from * (half.cols / 2), static_cast<std::size_t>(half.cols / 2));
  for (std::int64_t group = 0; group < groups; group += 4) {
    std::memcpy(block_scale + locate_block_scale(layout, 0, row, group), scales + group,
                static_cast<std::size_t>(std::min<std::int64_t>(4, groups - group)));
  }
}

}  // namespace

void pack_expert(const WeightLayout& layout,
                 std::span<const CanonicalMatrix> halves,
                 std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> block_scale) {
  std::size_t code_bytes = 0;
  std::size_t scale_bytes = 0;
  for (const CanonicalMatrix& half : halves) {
    code_bytes += half.codes.size();
    scale_bytes += half.block_scale.size();
  }
  // What no row fills; large models have no such bytes.
  if (codes.size() != code_bytes) std::ranges::fill(codes, std::uint8_t{0});
  if (block_scale.size() != scale_bytes) std::ranges::fill(block_scale, std::uint8_t{0});
  std::int64_t row = 0;
  for (const CanonicalMatrix& half : halves) {
    for (std::int64_t from = 0; from < half.rows; ++from, ++row)
      pack_row(layout, half, from, row, codes.data(), block_scale.data());
  }
}

}  // namespace halfbyte::sm100
