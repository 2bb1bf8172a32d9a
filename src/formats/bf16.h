// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_BF16_H_
#define HALFBYTE_FORMATS_BF16_H_

#include <bit>
#include <cstdint>

namespace halfbyte {

/// bf16 is the upper half of an fp32; widening is exact.
constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Nearest, ties to even. A NaN stays a NaN (quiet, sign kept).
constexpr std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// fp32 rounded to the nearest bf16 value.
constexpr float round_to_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_BF16_H_
