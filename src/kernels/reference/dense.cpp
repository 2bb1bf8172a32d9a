// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/dense.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "formats/bf16.h"
#include "formats/convert.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/scratch.h"

namespace halfbyte::reference {
namespace {

double sum_of_squares(const float* x, std::int64_t width) {
  return dot(x, x, width);
}

/// Turns scores into exp(score - max) and returns their sum.
double exponentiate(double* scores, std::int64_t count) {
  const double max = *std::max_element(scores, scores + count);
  double sum = 0.0;
  for (std::int64_t t = 0; t < count; ++t) {
    scores[t] = std::exp(scores[t] - max);
    sum += scores[t];
  }
  return sum;
}

}  // namespace

void linear(const CanonicalMatrix& weight,
            const float* bias,
            const float* x,
            std::int64_t num_tokens,
            float* y) {
  thread_local std::vector<float> buffer;
  float* weight_row = scratch_at_least(buffer, weight.cols);
  const double scale = weight.format == WeightFormat::kNvfp4 ? weight.global_scale : 1.0F;
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row, weight_row);
    const double offset = bias != nullptr ? bias[row] : 0.0F;
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      const double sum = dot(x + token * weight.cols, weight_row, weight.cols);
      y[token * weight.rows + row] = static_cast<float>(sum * scale + offset);
    }
  }
}

void rms_norm(const float* x,
              const float* weight,
              float epsilon,
              std::int64_t num_rows,
              std::int64_t width,
              bool round_bf16,
              float* y) {
  for (std::int64_t row = 0; row < num_rows; ++row, x += width, y += width) {
    const double mean = sum_of_squares(x, width) / static_cast<double>(width);
    const auto inverse = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
    for (std::int64_t i = 0; i < width; ++i) {
      const float normed = x[i] * inverse;
      y[i] = round_bf16 ? round_to_bf16(weight[i] * round_to_bf16(normed)) : weight[i] * normed;
    }
  }
}

void rope(float* x, const float* cos, const float* sin, std::int64_t num_pairs, bool interleaved) {
  const std::int64_t stride = interleaved ? 2 : 1;
  const std::int64_t partner = interleaved ? 1 : num_pairs;
  for (std::int64_t i = 0; i < num_pairs; ++i) {
    float& first = x[i * stride];
    float& second = x[i * stride + partner];
    const float a = first;
    const float b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
}

void attend(const float* q,
            const float* const* keys,
            const float* const* values,
            std::int64_t num_keys,
            std::int64_t key_width,
            std::int64_t value_width,
            float scale,
            float* out) {
  std::fill_n(out, value_width, 0.0F);
  if (num_keys == 0) return;
  thread_local std::vector<double> buffer;
  double* weights = scratch_at_least(buffer, num_keys + value_width);
  double* sums = weights + num_keys;
  for (std::int64_t t = 0; t < num_keys; ++t)
    weights[t] = static_cast<double>(scale) * dot(q, keys[t], key_width);
  const double total = exponentiate(weights, num_keys);
  std::fill_n(sums, value_width, 0.0);
  for (std::int64_t t = 0; t < num_keys; ++t) {
    for (std::int64_t i = 0; i < value_width; ++i)
      sums[i] += weights[t] * static_cast<double>(values[t][i]);
  }
  for (std::int64_t i = 0; i < value_width; ++i)
    out[i] = static_cast<float>(sums[i] / total);
}

}  // namespace halfbyte::reference
