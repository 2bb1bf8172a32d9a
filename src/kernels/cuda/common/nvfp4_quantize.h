// SPDX-License-Identifier: Apache-2.0
//
// Activations -> NVFP4 (nvfp4-moe 5.2), for kernels and for the host, bit for bit formats/nvfp4.
// Device code is compiled without fused multiply-adds: every operation rounds by itself.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_QUANTIZE_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_QUANTIZE_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "formats/host_device.h"

namespace halfbyte::cuda {

inline constexpr int kNvfp4Block = 16;

HALFBYTE_HOST_DEVICE inline std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}
HALFBYTE_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

HALFBYTE_HOST_DEVICE inline bool is_finite(float value) {
  return (bits_of(value) & 0x7F800000U) != 0x7F800000U;
}

/// The code of a value that is not NaN: even codes own both ends of their interval.
HALFBYTE_HOST_DEVICE inline std::uint32_t encode_e2m1(float value) {
  const float m = fabsf(value);
  const int code = (m > 0.25F) + (m >= 0.75F) + (m > 1.25F) + (m >= 1.75F) + (m > 2.5F) +
                   (m >= 3.5F) + (m > 5.0F);
  return static_cast<std::uint32_t>(code) | (bits_of(value) >> 31 << 3);
}

/// The nearest E4M3 of a value >= 0, ties to even, saturating at 448.
HALFBYTE_HOST_DEVICE inline std::uint32_t encode_e4m3(float value) {
  if (value >= 448.0F) return 0x7E;
  // Below 2^-6 codes count in steps of 2^-9; a result of 8 is the first normal number.
  if (value < 0x1p-6F) return static_cast<std::uint32_t>(rintf(value * 0x1p9F));
  const std::uint32_t bits = bits_of(value);
  return ((bits + 0x7FFFFU + (bits >> 20 & 1U)) >> 20) - (120U << 3);
}

/// Of a byte from 0x00 to 0x7E.
HALFBYTE_HOST_DEVICE inline float decode_e4m3(std::uint32_t byte) {
  if (byte < 8) return static_cast<float>(byte) * 0x1p-9F;
  return float_of((byte << 20) + (120U << 23));
}

/// The scalars that a decode-side scale gives, each rounded once.
struct QuantizeScale {
  float s;  // 0: every finite block becomes zeros
  float c;  // RN(a / 6), a = RN(1 / s)
  float d;  // RN(1 / a)
};
HALFBYTE_HOST_DEVICE inline QuantizeScale make_quantize_scale(float s) {
  const float a = 1.0F / s;
  return {s, a * float_of(0x3E2AAAABU), 1.0F / a};
}

/// 16 codes, the first in the lowest nibble, and their scale.
struct QuantizedBlock {
  std::uint32_t codes[2];
  std::uint32_t scale;
};

HALFBYTE_HOST_DEVICE inline QuantizedBlock quantize_block(const float (&x)[kNvfp4Block],
                                                          const QuantizeScale& scale) {
  float amax = 0.0F;
  bool finite = true;
  for (const float value : x) {
    finite = finite && is_finite(value);
    amax = fmaxf(amax, fabsf(value));
  }
  if (!finite) return {{0, 0}, 0x7F};
  if (amax == 0.0F || scale.s == 0.0F) return {{0, 0}, 0};
  const std::uint32_t rounded = encode_e4m3(amax * scale.c);
  QuantizedBlock block = {{0, 0}, rounded == 0 ? 1U : rounded};
  const float q = fminf(1.0F / (decode_e4m3(block.scale) * scale.d), 0x1.fffffep127F);
  for (int i = 0; i < kNvfp4Block; ++i)
    block.codes[i / 8] |= encode_e2m1(x[i] * q) << (i % 8 * 4);
  return block;
}

/// What w4a4_dynamic finds out about a row.
struct RowRange {
  float amax = 0.0F;  // over finite values
  bool any_finite = false;

  HALFBYTE_HOST_DEVICE void add(float value) {
    if (!is_finite(value)) return;
    any_finite = true;
    amax = fmaxf(amax, fabsf(value));
  }
  /// The decode-side scale: 0 for a row without content, 1 when nothing is finite.
  HALFBYTE_HOST_DEVICE float scale() const {
    if (!any_finite) return 1.0F;
    return amax < 0x1p-100F ? 0.0F : amax / 2688.0F;
  }
};

/// What a sum over a row that was quantised with s is multiplied with.
HALFBYTE_HOST_DEVICE inline float row_alpha(float global_scale, float s) {
  return s == 0.0F ? 0.0F : global_scale / (1.0F / s);
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_QUANTIZE_H_
