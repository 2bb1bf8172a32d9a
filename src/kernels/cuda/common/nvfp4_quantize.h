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
#ifdef __CUDACC__
#include "kernels/cuda/ptx/mma.cuh"
#endif

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

/// RN(1 / x) for 2^-126 <= x < 2^126; NaN passes. There the hardware's inverse and one step of
/// Newton's round as a division does, which would bring a branch and a call for all other x.
HALFBYTE_HOST_DEVICE inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  const float r = ptx::reciprocal_approx(x);
  return fmaf(r, fmaf(-x, r, 1.0F), r);
#else
  return 1.0F / x;
#endif
}

/// min(RN(1 / x), FLT_MAX) for 0 <= x < 2^126.
HALFBYTE_HOST_DEVICE inline float bounded_reciprocal(float x) {
  const float unit = x < 0x1p-60F ? 0x1p64F : 1.0F;  // its products are exact
  return fminf(reciprocal(x * unit) * unit, 0x1.fffffep127F);
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

/// Of a byte from 0x00 to 0x7E: its bits as those of an fp32 number, 2^120 too small.
HALFBYTE_HOST_DEVICE inline float decode_e4m3(std::uint32_t byte) {
  return float_of(byte << 20) * 0x1p120F;
}

/// The E2M1 number nearest to a value that is not NaN: what its code stands for. Added to 2^23
/// times the step between numbers of its size, a magnitude loses what is less than a step.
HALFBYTE_HOST_DEVICE inline float round_e2m1(float value) {
  const float m = fabsf(value);
  const float steps = m < 2.0F ? 0x1p22F : m < 4.0F ? 0x1p23F : 0x1p24F;
  return copysignf(fminf((m + steps) - steps, 6.0F), value);
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

/// The bits of |value|, which order as magnitudes do: infinity and NaN are the largest.
HALFBYTE_HOST_DEVICE inline std::uint32_t magnitude_bits(float value) {
  return bits_of(value) & 0x7FFFFFFFU;
}
HALFBYTE_HOST_DEVICE inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return a < b ? b : a;
}

/// What 16 values share.
struct BlockScale {
  std::uint32_t byte;  // E4M3; 0x7F: a value is not finite
  float q;             // a value times q is rounded to E2M1, unless byte is 0 or 0x7F: then to 0
};
/// `amax_bits`: the largest magnitude_bits of the block.
HALFBYTE_HOST_DEVICE inline BlockScale make_block_scale(std::uint32_t amax_bits,
                                                        const QuantizeScale& scale) {
  if (amax_bits >= 0x7F800000U) return {0x7F, 0.0F};
  if (amax_bits == 0 || scale.s == 0.0F) return {0, 0.0F};
  const std::uint32_t rounded = encode_e4m3(float_of(amax_bits) * scale.c);
  const std::uint32_t byte = rounded == 0 ? 1U : rounded;
  return {byte, bounded_reciprocal(decode_e4m3(byte) * scale.d)};
}
HALFBYTE_HOST_DEVICE inline BlockScale make_block_scale(const float (&x)[kNvfp4Block],
                                                        const QuantizeScale& scale) {
  std::uint32_t amax_bits = 0;
  for (const float value : x)
    amax_bits = larger(amax_bits, magnitude_bits(value));
  return make_block_scale(amax_bits, scale);
}

/// 16 codes, the first in the lowest nibble, and their scale.
struct QuantizedBlock {
  std::uint32_t codes[2];
  std::uint32_t scale;
};
HALFBYTE_HOST_DEVICE inline QuantizedBlock quantize_block(const float (&x)[kNvfp4Block],
                                                          const QuantizeScale& scale) {
  const BlockScale shared = make_block_scale(x, scale);
  QuantizedBlock block = {{0, 0}, shared.byte};
  if (shared.byte == 0 || shared.byte == 0x7F) return block;
  for (int i = 0; i < kNvfp4Block; ++i)
    block.codes[i / 8] |= encode_e2m1(x[i] * shared.q) << (i % 8 * 4);
  return block;
}

/// Code times block scale of one of the block's values: at most 6 significant bits, so exact in
/// bf16 too. NaN where the scale is.
HALFBYTE_HOST_DEVICE inline float grid_value(float x, const BlockScale& block) {
  if (block.byte == 0x7F) return float_of(0x7FC00000U);
  return block.byte == 0 ? 0.0F : round_e2m1(x * block.q) * decode_e4m3(block.byte);
}

/// Two such values as bf16, the first in the lower half.
HALFBYTE_HOST_DEVICE inline std::uint32_t grid_pair(float first, float second) {
  return bits_of(first) >> 16 | (bits_of(second) & 0xFFFF0000U);
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
