// SPDX-License-Identifier: Apache-2.0
//
// h of one element (nvfp4-moe 6) with the hardware's exp2, within 2^-20 relative of the exact
// value.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_

#include <limits>

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

/// Every gated activation is one formula with these numbers, so that unrolled epilogues stay small:
/// h = gate * sigmoid(alpha * gate + cubic * gate^3) * (up + beta), gate = min(g, limit), up = u
/// clamped to +-limit.
struct GatedActivation {
  float limit, alpha, beta, cubic;
  bool swiglu;  // the plain one
};
inline GatedActivation make_gated_activation(const ActivationSpec& spec) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (spec.function) {
    case ActivationFunction::kSwigluClamped:
      return {spec.limit, spec.alpha, spec.beta, 0.0F, false};
    case ActivationFunction::kGegluTanh:
      return {kInfinity, 1.59576912F, 0.0F, 1.59576912F * 0.044715F, false};
    default:
      return {kInfinity, 1.0F, 0.0F, 0.0F, true};
  }
}

/// A zero sigmoid wins over an infinite factor, not over a NaN.
__device__ __forceinline__ float gate_times(float gate, float sigmoid, float up) {
  return sigmoid == 0.0F && up == up ? 0.0F : gate * sigmoid * up;
}

/// NaN passes.
__device__ __forceinline__ float activate(const GatedActivation& a, float g, float u) {
  const float gate = a.limit < g ? a.limit : g;
  const float below = a.limit < u ? a.limit : u;
  const float up = (below < -a.limit ? -a.limit : below) + a.beta;
  const float linear = a.alpha * gate;
  const float x = a.cubic == 0.0F ? linear : __fmaf_rn(a.cubic * gate * gate, gate, linear);
  return gate_times(gate, sigmoid(x), up);
}

/// The same bits for what kSwiglu makes of the formula, in half the instructions.
__device__ __forceinline__ float swiglu(float g, float u) {
  return gate_times(g, sigmoid(g), u);
}

__device__ __forceinline__ float relu2(float u) {
  const float positive = u < 0.0F ? 0.0F : u;
  return positive * positive;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_ACTIVATION_CUH_
