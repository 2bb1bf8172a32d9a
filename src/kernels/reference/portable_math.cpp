// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/portable_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace halfbyte::reference {
namespace {

constexpr float kExpLimit = 87.0F;

// 2^n for a normal result.
float power_of_two(int n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

}  // namespace

float portable_exp(float z) {
  if (std::isnan(z)) return z;
  z = std::clamp(z, -kExpLimit, kExpLimit);
  const float n = std::rint(z * 1.44269502F);
  float r = std::fma(n, -0.693147182F, z);
  r = std::fma(n, 1.90465421e-9F, r);
  float p = 1.0F / 5040.0F;
  for (const float coefficient :
       {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) {
    p = std::fma(p, r, coefficient);
  }
  return p * power_of_two(static_cast<int>(n));
}

float portable_sigmoid(float x) {
  if (x < -kExpLimit) return 0.0F;
  return 1.0F / (1.0F + portable_exp(-x));
}

float portable_log1p(float u) {
  const float s = u / (2.0F + u);
  const float q = s * s;
  float p = 1.0F / 13.0F;
  for (const float coefficient :
       {1.0F / 11.0F, 1.0F / 9.0F, 1.0F / 7.0F, 1.0F / 5.0F, 1.0F / 3.0F, 1.0F}) {
    p = std::fma(p, q, coefficient);
  }
  return 2.0F * (s * p);
}

float portable_softplus(float x) {
  return std::max(x, 0.0F) + portable_log1p(portable_exp(-std::fabs(x)));
}

}  // namespace halfbyte::reference
