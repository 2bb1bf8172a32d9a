// SPDX-License-Identifier: Apache-2.0
#include "formats/f16.h"

#include <bit>
#include <cmath>

namespace halfbyte {

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity, or a NaN that keeps its payload
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
  }
  if (magnitude < 0x400U) {  // subnormal: steps of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {  // NaN, made quiet
    half = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  } else if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: steps of 2^-24
    half = static_cast<std::uint32_t>(std::lrint(std::bit_cast<float>(magnitude) * 0x1p24F));
  } else {
    half = ((magnitude + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13) - ((127U - 15U) << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace halfbyte
