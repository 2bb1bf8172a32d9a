// SPDX-License-Identifier: Apache-2.0
//
// exp, sigmoid and log1p as fixed sequences of IEEE fp32 operations, so that every backend gets the
// same bits (docs/numerics.md, "Portable functions").
#ifndef HALFBYTE_KERNELS_REFERENCE_PORTABLE_MATH_H_
#define HALFBYTE_KERNELS_REFERENCE_PORTABLE_MATH_H_

namespace halfbyte::reference {

/// exp(z) for z clamped to [-87, 87]; NaN stays NaN.
float portable_exp(float z);
/// 1 / (1 + exp(-x)); 0 for x < -87; NaN stays NaN. Error at most 2.4 ulp for |x| <= 87.
float portable_sigmoid(float x);
/// log(1 + u) for u in [0, 1].
float portable_log1p(float u);
/// log(1 + exp(x)).
float portable_softplus(float x);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_PORTABLE_MATH_H_
