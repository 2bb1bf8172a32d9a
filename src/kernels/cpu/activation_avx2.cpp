// SPDX-License-Identifier: Apache-2.0
//
// The activation functions with the portable sigmoid of docs/numerics.md, operation by operation, 8
// elements at a time: the bits of reference::activate.
#include <immintrin.h>

#include "kernels/cpu/activation_avx2.h"

namespace halfbyte::cpu {
namespace {

inline __m256 all(float value) {
  return _mm256_set1_ps(value);
}

// exp of z clamped to +-87. The operand order lets a NaN through min and max.
inline __m256 portable_exp(__m256 z) {
  z = _mm256_min_ps(all(87.0F), _mm256_max_ps(all(-87.0F), z));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(z, all(1.44269502F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, all(-0.693147182F), z);
  r = _mm256_fmadd_ps(n, all(1.90465421e-9F), r);
  __m256 p = all(1.0F / 5040.0F);
  p = _mm256_fmadd_ps(p, r, all(1.0F / 720.0F));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 120.0F));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 24.0F));
  p = _mm256_fmadd_ps(p, r, all(1.0F / 6.0F));
  p = _mm256_fmadd_ps(p, r, all(0.5F));
  p = _mm256_fmadd_ps(p, r, all(1.0F));
  p = _mm256_fmadd_ps(p, r, all(1.0F));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

inline __m256 portable_sigmoid(__m256 x) {
  const __m256 exp = portable_exp(_mm256_xor_ps(x, all(-0.0F)));
  const __m256 sigmoid = _mm256_div_ps(all(1.0F), _mm256_add_ps(all(1.0F), exp));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, all(-87.0F), _CMP_LT_OQ), sigmoid);
}

// (gate * sigmoid) * other; a zero sigmoid gives +0 unless `other` is NaN.
inline __m256 gated_product(__m256 gate, __m256 sigmoid, __m256 other) {
  const __m256 product = _mm256_mul_ps(_mm256_mul_ps(gate, sigmoid), other);
  const __m256 zero = _mm256_and_ps(_mm256_cmp_ps(sigmoid, _mm256_setzero_ps(), _CMP_EQ_OQ),
                                    _mm256_cmp_ps(other, other, _CMP_ORD_Q));
  return _mm256_andnot_ps(zero, product);
}

inline __m256 swiglu_clamped(const ActivationSpec& spec, __m256 g, __m256 u) {
  const __m256 gate = _mm256_min_ps(all(spec.limit), g);
  const __m256 up = _mm256_min_ps(all(spec.limit), _mm256_max_ps(all(-spec.limit), u));
  return gated_product(gate, portable_sigmoid(_mm256_mul_ps(all(spec.alpha), gate)),
                       _mm256_add_ps(up, all(spec.beta)));
}

inline __m256 relu2(__m256 u) {
  const __m256 positive = _mm256_max_ps(_mm256_setzero_ps(), u);
  return _mm256_mul_ps(positive, positive);
}

inline __m256 geglu_tanh(__m256 g, __m256 u) {
  const __m256 cubic = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(all(0.044715F), g), g), g);
  const __m256 inner = _mm256_mul_ps(all(1.59576912F), _mm256_add_ps(g, cubic));
  return gated_product(g, portable_sigmoid(inner), u);
}

inline __m256 activate(const ActivationSpec& spec, __m256 g, __m256 u) {
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
  return _mm256_setzero_ps();
}

}  // namespace

void activate_avx2(
    const ActivationSpec& spec, const float* g, const float* u, std::int64_t count, float* h) {
  for (std::int64_t i = 0; i < count; i += 8) {
    const __m256 gate = g == nullptr ? _mm256_setzero_ps() : _mm256_loadu_ps(g + i);
    _mm256_storeu_ps(h + i, activate(spec, gate, _mm256_loadu_ps(u + i)));
  }
}

void add_weighted_avx2(float weight, const float* row, std::int64_t count, bool first, float* acc) {
  const __m256 w = all(weight);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(row + i);
    _mm256_storeu_ps(acc + i, first ? _mm256_mul_ps(w, value)
                                    : _mm256_fmadd_ps(w, value, _mm256_loadu_ps(acc + i)));
  }
  for (; i < count; ++i)
    acc[i] = first ? weight * row[i] : __builtin_fmaf(weight, row[i], acc[i]);
}

}  // namespace halfbyte::cpu
