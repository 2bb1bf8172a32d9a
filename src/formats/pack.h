// SPDX-License-Identifier: Apache-2.0
//
// Packing by walking a layout's index functions: plain, and the oracle of every fast packer.
#ifndef HALFBYTE_FORMATS_PACK_H_
#define HALFBYTE_FORMATS_PACK_H_

#include <cstdint>
#include <span>

#include "formats/layout.h"

namespace halfbyte {

/// Canonical rows of one expert (codes [rows, cols / 2], gate rows first) into the expert's place
/// in dst [layout.code_bytes()]. Every byte of the expert is written; padding is zero.
void pack_codes(const WeightLayout& layout,
                std::int64_t expert_idx,
                std::span<const std::uint8_t> codes,
                std::span<std::uint8_t> dst);
/// The same for block scales [rows, cols / 16] into dst [layout.scale_bytes()].
void pack_block_scales(const WeightLayout& layout,
                       std::int64_t expert_idx,
                       std::span<const std::uint8_t> block_scale,
                       std::span<std::uint8_t> dst);

/// The way back: codes [rows, cols / 2] and block_scale [rows, cols / 16] of one expert.
void unpack_codes(const WeightLayout& layout,
                  std::int64_t expert_idx,
                  std::span<const std::uint8_t> src,
                  std::span<std::uint8_t> codes);
void unpack_block_scales(const WeightLayout& layout,
                         std::int64_t expert_idx,
                         std::span<const std::uint8_t> src,
                         std::span<std::uint8_t> block_scale);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_PACK_H_
