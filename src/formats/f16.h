// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_FORMATS_F16_H_
#define HALFBYTE_FORMATS_F16_H_

#include <cstdint>

namespace halfbyte {

/// IEEE half precision. Widening is exact; narrowing is nearest, ties to even.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_F16_H_
