// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_E2M1_H_
#define HALFBYTE_FORMATS_E2M1_H_

#include <array>
#include <bit>
#include <cstdint>

namespace halfbyte {

inline constexpr float kE2m1Max = 6.0F;
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                      4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                      -2.0F, -3.0F, -4.0F, -6.0F};

/// A code is sign << 3 | magnitude index.
constexpr float e2m1_to_f32(std::uint8_t code) {
  return kE2m1Values[code & 15U];
}

/// Nearest, ties to the even code, saturating at 6. The sign survives a result of zero: -0.1 is
/// code 8. NaN has no code: callers mark the block instead.
constexpr std::uint8_t f32_to_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  // Upper end of each code's interval; even codes own both their ends.
  std::uint8_t code = 7;
  if (magnitude <= 0.25F) {
    code = 0;
  } else if (magnitude < 0.75F) {
    code = 1;
  } else if (magnitude <= 1.25F) {
    code = 2;
  } else if (magnitude < 1.75F) {
    code = 3;
  } else if (magnitude <= 2.5F) {
    code = 4;
  } else if (magnitude < 3.5F) {
    code = 5;
  } else if (magnitude <= 5.0F) {
    code = 6;
  }
  return static_cast<std::uint8_t>(code | (bits >> 31 << 3));
}

/// Element `col` of a packed row: the low nibble holds the even column.
constexpr std::uint8_t e2m1_code_at(const std::uint8_t* row, std::int64_t col) {
  return static_cast<std::uint8_t>((row[col / 2] >> (col % 2 * 4)) & 15U);
}

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_E2M1_H_
