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

/// exp(z) for z clamped to [-87, 87]. NaN passes.
HALFBYTE_HOST_DEVICE inline float portable_exp(float z) {
  if (z != z) return z;
  z = fminf(fmaxf(z, -kPortableExpLimit), kPortableExpLimit);
  const float n = rintf(z * 1.44269502F);
  float r = fmaf(n, -0.693147182F, z);
  r = fmaf(n, 1.90465421e-9F, r);
  float p = fmaf(1.0F / 5040.0F, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  return p * float_of(static_cast<std::uint32_t>(static_cast<int>(n) + 127) << 23);
}

HALFBYTE_HOST_DEVICE inline float portable_sigmoid(float x) {
  if (x < -kPortableExpLimit) return 0.0F;
  return 1.0F / (1.0F + portable_exp(-x));
}

/// (gate * sigmoid) * up: a zero sigmoid wins over an infinite factor, not over a NaN.
HALFBYTE_HOST_DEVICE inline float portable_gated_product(float gate, float sigmoid, float up) {
  if (sigmoid == 0.0F && up == up) return 0.0F;
  return (gate * sigmoid) * up;
}

/// h from g = alpha_gate * acc_gate (not read by kRelu2) and u = alpha_up * acc_up. NaN passes.
HALFBYTE_HOST_DEVICE inline float portable_activate(const ActivationSpec& spec, float g, float u) {
  switch (spec.function) {
    case ActivationFunction::kSwiglu:
      return portable_gated_product(g, portable_sigmoid(g), u);
    case ActivationFunction::kSwigluClamped: {
      const float gate = spec.limit < g ? spec.limit : g;
      const float below = spec.limit < u ? spec.limit : u;
      const float up = below < -spec.limit ? -spec.limit : below;
      return portable_gated_product(gate, portable_sigmoid(spec.alpha * gate), up + spec.beta);
    }
    case ActivationFunction::kRelu2: {
      const float positive = u < 0.0F ? 0.0F : u;
      return positive * positive;
    }
    case ActivationFunction::kGegluTanh: {
      const float cubic = g + 0.044715F * g * g * g;
      return portable_gated_product(g, portable_sigmoid(1.59576912F * cubic), u);
    }
  }
  return 0.0F;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_PORTABLE_ACTIVATION_H_
