// SPDX-License-Identifier: Apache-2.0
#include "formats/e4m3.h"

#include <cmath>

namespace halfbyte {
namespace {

std::uint32_t magnitude_bits(std::uint32_t f32_magnitude) {
  const float value = std::bit_cast<float>(f32_magnitude);
  if (f32_magnitude > 0x7F800000U) return kE4m3Nan;
  if (value >= kE4m3Max) return kE4m3MaxBits;
  // Below 2^-6 codes count in steps of 2^-9; a result of 8 is the first normal number.
  if (value < 0x1p-6F) return static_cast<std::uint32_t>(std::lrint(value * 0x1p9F));
  const std::uint32_t ties_to_even = 0x7FFFFU + ((f32_magnitude >> 20) & 1U);
  return ((f32_magnitude + ties_to_even) >> 20) - ((127U - 7U) << 3);
}

}  // namespace

std::uint8_t f32_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | magnitude_bits(bits & 0x7FFFFFFFU));
}

float e8m0_to_f32(std::uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7FC00000U);
  return std::ldexp(1.0F, static_cast<int>(bits) - 127);
}

}  // namespace halfbyte
