// SPDX-License-Identifier: Apache-2.0
#include "formats/pack.h"

#include "formats/e2m1.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

std::uint8_t read_code(const WeightLayout& layout,
                       std::span<const std::uint8_t> codes,
                       const LayoutElement& element) {
  if (element.is_padding) return 0;
  return e2m1_code_at(codes.data() + element.row * (layout.shape.cols / 2), element.col);
}

}  // namespace

void pack_codes(const WeightLayout& layout,
                std::int64_t expert_idx,
                std::span<const std::uint8_t> codes,
                std::span<std::uint8_t> dst) {
  const std::int64_t begin = expert_idx * layout.code_bytes_per_expert();
  const std::int64_t end = begin + layout.code_bytes_per_expert();
  for (std::int64_t byte = begin; byte < end; ++byte) {
    const std::uint8_t low = read_code(layout, codes, code_element(layout, {byte, 0}));
    const std::uint8_t high = read_code(layout, codes, code_element(layout, {byte, 4}));
    dst[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

void pack_block_scales(const WeightLayout& layout,
                       std::int64_t expert_idx,
                       std::span<const std::uint8_t> block_scale,
                       std::span<std::uint8_t> dst) {
  const std::int64_t groups = layout.shape.cols / kNvfp4BlockSize;
  const std::int64_t begin = expert_idx * layout.scale_bytes_per_expert();
  const std::int64_t end = begin + layout.scale_bytes_per_expert();
  for (std::int64_t byte = begin; byte < end; ++byte) {
    const LayoutElement element = block_scale_element(layout, byte);
    const auto index = static_cast<std::size_t>(element.row * groups + element.col);
    dst[static_cast<std::size_t>(byte)] = element.is_padding ? std::uint8_t{0} : block_scale[index];
  }
}

void unpack_codes(const WeightLayout& layout,
                  std::int64_t expert_idx,
                  std::span<const std::uint8_t> src,
                  std::span<std::uint8_t> codes) {
  const auto code_at = [&](std::int64_t row, std::int64_t col) {
    const CodeLocation location = locate_code(layout, expert_idx, row, col);
    return (src[static_cast<std::size_t>(location.byte)] >> location.shift) & 15;
  };
  std::size_t index = 0;
  for (std::int64_t row = 0; row < layout.rows(); ++row) {
    for (std::int64_t col = 0; col < layout.shape.cols; col += 2)
      codes[index++] = static_cast<std::uint8_t>(code_at(row, col) | (code_at(row, col + 1) << 4));
  }
}

void unpack_block_scales(const WeightLayout& layout,
                         std::int64_t expert_idx,
                         std::span<const std::uint8_t> src,
                         std::span<std::uint8_t> block_scale) {
  std::size_t index = 0;
  for (std::int64_t row = 0; row < layout.rows(); ++row) {
    for (std::int64_t group = 0; group < layout.shape.cols / kNvfp4BlockSize; ++group)
      block_scale[index++] =
          src[static_cast<std::size_t>(locate_block_scale(layout, expert_idx, row, group))];
  }
}

}  // namespace halfbyte
