// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_E4M3_H_
#define HALFBYTE_FORMATS_E4M3_H_

#include <array>
#include <bit>
#include <cstdint>

namespace halfbyte {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3MaxBits = 0x7E;
inline constexpr std::uint8_t kE4m3Nan = 0x7F;

namespace e4m3_detail {

// sign, 4 exponent bits of bias 7, 3 mantissa bits; exponent 0 counts in steps of 2^-9.
constexpr float decode(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80U) << 24;
  const std::uint32_t magnitude = bits & 0x7FU;
  if (magnitude == kE4m3Nan) return std::bit_cast<float>(sign | 0x7FC00000U);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127U - 7U) << 23)));
}

constexpr std::array<float, 256> make_values() {
  std::array<float, 256> values = {};
  for (unsigned bits = 0; bits < 256; ++bits)
    values[bits] = decode(static_cast<std::uint8_t>(bits));
  return values;
}

}  // namespace e4m3_detail

/// The value of each of the 256 bytes.
inline constexpr std::array<float, 256> kE4m3Values = e4m3_detail::make_values();

/// The value of an E4M3 byte (sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinity; 0x7F
/// and 0xFF are NaN). Exact.
constexpr float e4m3_to_f32(std::uint8_t bits) {
  return kE4m3Values[bits];
}

/// Nearest, ties to even, saturating at +-448 (infinities too); NaN gives 0x7F with the sign.
std::uint8_t f32_to_e4m3(float value);

/// E8M0: 2^(bits - 127); 255 is NaN.
float e8m0_to_f32(std::uint8_t bits);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_E4M3_H_
