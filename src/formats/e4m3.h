// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_E4M3_H_
#define HALFBYTE_FORMATS_E4M3_H_

#include <cstdint>

namespace halfbyte {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3MaxBits = 0x7E;
inline constexpr std::uint8_t kE4m3Nan = 0x7F;

/// The value of an E4M3 byte (sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinity; 0x7F
/// and 0xFF are NaN). Exact.
float e4m3_to_f32(std::uint8_t bits);

/// Nearest, ties to even, saturating at +-448 (infinities too); NaN gives 0x7F with the sign.
std::uint8_t f32_to_e4m3(float value);

/// E8M0: 2^(bits - 127); 255 is NaN.
float e8m0_to_f32(std::uint8_t bits);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_E4M3_H_
