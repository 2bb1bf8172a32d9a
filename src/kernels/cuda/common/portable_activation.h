// SPDX-License-Identifier: Apache-2.0
//
// h of one element with the portable sigmoid (nvfp4-moe 6), for kernels and for the host, bit for
// bit kernels/reference/activation. activation.cuh has the hardware's exp2 instead.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_PORTABLE_ACTIVATION_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_PORTABLE_ACTIVATION_H_

#include "halfbyte/moe.h"
#include "kernels/cuda/common/nvfp4_quantize.h"

namespace halfbyte::cuda {

inline constexpr float kPortableExpLimit = 87.0F;

/// exp(z) for z clamped to [-87, 87]. NaN passes. Added to 1.5 * 2^23 a small number is rounded to
/// an integer n, which the sum's low bits hold.
HALFBYTE_HOST_DEVICE inline float portable_exp(float z) {
  if (z != z) return z;
  z = fminf(fmaxf(z, -kPortableExpLimit), kPortableExpLimit);
  const float shifted = z * 1.44269502F + 0x1.8p23F;
  const float n = shifted - 0x1.8p23F;
  float r = fmaf(n, -0.693147182F, z);
  r = fmaf(n, 1.90465421e-9F, r);
  float p = fmaf(1.0F / 5040.0F, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  return p * float_of((bits_of(shifted) + 127U) << 23);  // 2^n
}

HALFBYTE_HOST_DEVICE inline float portable_sigmoid(float x) {
  if (x < -kPortableExpLimit) return 0.0F;
  return reciprocal(1.0F + portable_exp(-x));
}

/// (gate * sigmoid) * up: a zero sigmoid wins over an infinite factor, not over a NaN.
HALFBYTE_HOST_DEVICE inline float portable_gated_product(float gate, float sigmoid, float up) {
  if (sigmoid == 0.0F && up == up) return 0.0F;
  return (gate * sigmoid) * up;
}

HALFBYTE_HOST_DEVICE inline float portable_swiglu(float g, float u) {
  return portable_gated_product(g, portable_sigmoid(g), u);
}

HALFBYTE_HOST_DEVICE inline float portable_relu2(float u) {
  const float positive = u < 0.0F ? 0.0F : u;
  return positive * positive;
}

/// h from g = alpha_gate * acc_gate (not read by kRelu2) and u = alpha_up * acc_up. NaN passes. One
/// sigmoid serves every function, so that unrolled epilogues stay small.
HALFBYTE_HOST_DEVICE inline float portable_activate(const ActivationSpec& spec, float g, float u) {
  if (spec.function == ActivationFunction::kRelu2) return portable_relu2(u);
  float x = g;  // of the sigmoid
  if (spec.function == ActivationFunction::kSwigluClamped) {
    g = spec.limit < g ? spec.limit : g;
    const float below = spec.limit < u ? spec.limit : u;
    u = (below < -spec.limit ? -spec.limit : below) + spec.beta;
    x = spec.alpha * g;
  } else if (spec.function == ActivationFunction::kGegluTanh) {
    x = 1.59576912F * (g + 0.044715F * g * g * g);
  }
  return portable_gated_product(g, portable_sigmoid(x), u);
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_PORTABLE_ACTIVATION_H_
