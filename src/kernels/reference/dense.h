// SPDX-License-Identifier: Apache-2.0
//
// What a model needs around its experts, in plain loops. Sums in fp64, rounded to fp32 once.
#ifndef HALFBYTE_KERNELS_REFERENCE_DENSE_H_
#define HALFBYTE_KERNELS_REFERENCE_DENSE_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"

namespace halfbyte::reference {

/// y [num_tokens, rows] = x [num_tokens, cols] W^T + bias. bias may be null.
void linear(const CanonicalMatrix& weight,
            const float* bias,
            const float* x,
            std::int64_t num_tokens,
            float* y);

/// y = w * round(x / sqrt(mean(x^2) + eps)) row by row; `round_bf16` rounds the normed value and
/// the result to bf16. x and y may be the same. [num_rows, width], w [width].
void rms_norm(const float* x,
              const float* weight,
              float epsilon,
              std::int64_t num_rows,
              std::int64_t width,
              bool round_bf16,
              float* y);

/// Rotates the first 2 * num_pairs values of x in place. cos and sin [num_pairs].
/// interleaved: pairs (2i, 2i + 1); else halves: (i, i + num_pairs).
void rope(float* x, const float* cos, const float* sin, std::int64_t num_pairs, bool interleaved);

/// Softmax attention of one query head over `num_keys` keys: out [value_width] =
/// sum_t softmax(scale * q . k_t) v_t. key_row(t), value_row(t) give fp32 rows.
void attend(const float* q,
            const float* const* keys,
            const float* const* values,
            std::int64_t num_keys,
            std::int64_t key_width,
            std::int64_t value_width,
            float scale,
            float* out);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_DENSE_H_
