// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/activation.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/portable_math.h"

namespace halfbyte::reference {
namespace {

// (gate * sigmoid) * other. A zero sigmoid wins over an infinite factor, but not over a NaN.
float gated_product(float gate, float sigmoid, float other) {
  if (sigmoid == 0.0F && !std::isnan(other)) return 0.0F;
  return (gate * sigmoid) * other;
}

float swiglu_clamped(const ActivationSpec& spec, float g, float u) {
  // The gate is bounded above only. NaN passes through min and clamp in this argument order.
  const float gate = std::min(g, spec.limit);
  const float up = std::clamp(u, -spec.limit, spec.limit);
  return gated_product(gate, portable_sigmoid(spec.alpha * gate), up + spec.beta);
}

float relu2(float u) {
  const float positive = std::max(u, 0.0F);
  return positive * positive;
}

float geglu_tanh(float g, float u) {
  const float cubic = g + 0.044715F * g * g * g;
  return gated_product(g, portable_sigmoid(1.59576912F * cubic), u);
}

}  // namespace

float activate(const ActivationSpec& spec, float g, float u) {
  switch (spec.function) {
    case ActivationFunction::kSwiglu:
      return gated_product(g, portable_sigmoid(g), u);
    case ActivationFunction::kSwigluClamped:
      return swiglu_clamped(spec, g, u);
    case ActivationFunction::kRelu2:
      return relu2(u);
    case ActivationFunction::kGegluTanh:
      return geglu_tanh(g, u);
  }
  return 0.0F;
}

}  // namespace halfbyte::reference
