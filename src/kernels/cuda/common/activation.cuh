// SPDX-License-Identifier: Apache-2.0
//
// h of one element (nvfp4-moe 6) with the hardware's exp2, within 2^-20 relative of the exact
// value.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_

#include "halfbyte/moe.h"
#include "kernels/cuda/ptx/mma.cuh"

namespace halfbyte::cuda {

/// 1 / (1 + exp(-x)). The product -x * log2(e) is carried in two parts, or its rounding would cost
/// log2(|x|) bits of the result.
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2e = 1.44269502F;
  constexpr float kLog2eTail = 1.92596299e-8F;
  const float high = -x * kLog2e;
  const float low = __fmaf_rn(-x, kLog2eTail, __fmaf_rn(-x, kLog2e, -high));
  const float e = ptx::exp2_approx(high);
  const float corrected = fabsf(x) < 88.0F ? __fmaf_rn(e, low * 0.693147182F, e) : e;
  return __fdividef(1.0F, 1.0F + corrected);
}

/// (gate * sigmoid) * other. A zero sigmoid wins over an infinite factor, not over a NaN.
__device__ __forceinline__ float gated_product(float gate, float x, float other) {
  const float s = x < -87.0F ? 0.0F : sigmoid(x);
  return s == 0.0F && other == other ? 0.0F : gate * s * other;
}

__device__ __forceinline__ float swiglu_clamped(const ActivationSpec& spec, float g, float u) {
  // Written so that NaN passes.
  const float gate = spec.limit < g ? spec.limit : g;
  const float below = spec.limit < u ? spec.limit : u;
  const float up = below < -spec.limit ? -spec.limit : below;
  return gated_product(gate, spec.alpha * gate, up + spec.beta);
}

__device__ __forceinline__ float activate(const ActivationSpec& spec, float g, float u) {
  switch (spec.function) {
    case ActivationFunction::kSwiglu:
      return gated_product(g, g, u);
    case ActivationFunction::kSwigluClamped:
      return swiglu_clamped(spec, g, u);
    case ActivationFunction::kGegluTanh:
      return gated_product(g, 1.59576912F * (g + 0.044715F * g * g * g), u);
    case ActivationFunction::kRelu2: {
      const float positive = u < 0.0F ? 0.0F : u;
      return positive * positive;
    }
  }
  return 0.0F;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_
