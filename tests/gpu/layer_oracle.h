// SPDX-License-Identifier: Apache-2.0
//
// What a whole layer may give in w4a16 with bf16 h: every element in fp64 from the canonical
// weights, and the bound that follows from nvfp4-moe 8.3 for each GEMM and from each rounding.
#ifndef HALFBYTE_TESTS_GPU_LAYER_ORACLE_H_
#define HALFBYTE_TESTS_GPU_LAYER_ORACLE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/reference/oracle.h"
#include "support/moe_case.h"

namespace halfbyte::test {

/// A value and how far from it a right answer may be.
struct Bounded {
  std::vector<double> value, bound;
};

/// What one rounding to a type may change: half a step, relative, and half the smallest step there
/// is (fp16 has few small values).
inline double rounding_bound(DType dtype, double value) {
  const double relative = dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
  return std::abs(value) * relative + (dtype == DType::kF16 ? 0x1p-25 : 1e-37);
}

/// h of one element from sums that may be off by dg and du (numerics.md: derivatives of the
/// activations are at most 1.2 * |u + beta| in g and |g| in u), the hardware's exp2 and one bf16
/// rounding.
inline double h_bound(
    const ActivationSpec& activation, double g, double u, double dg, double du, double h) {
  const double rounding = std::abs(h) * (0x1p-8 + 0x1p-19) * 1.01;
  if (!activation.gated()) return (2 * std::abs(u) + du) * du + rounding;
  const double up = std::abs(u) + std::abs(double{activation.beta});
  const double alpha = std::max(1.0, std::abs(double{activation.alpha}));
  return 1.2 * alpha * (up + du) * dg + (std::abs(g) + dg) * du + rounding + 1e-37;
}

/// One expert on one row: y [H], unweighted, as rows of `row_dtype`.
inline Bounded expert_row(const MoeSpec& spec,
                          const test::TestExpert& expert,
                          std::span<const double> x,
                          DType row_dtype) {
  const auto width = static_cast<std::size_t>(spec.intermediate_size);
  const auto hidden = static_cast<std::size_t>(spec.hidden_size);
  std::vector<double> g(width), g_sum(width), u(width), u_sum(width), h(width), h_sum(width);
  const CanonicalExpert view = expert.expert();
  const auto gemm = [](const CanonicalMatrix& m, const double* in, double* out, double* sum) {
    reference::oracle_gemm_row(m, in, m.global_scale, out, sum);
  };
  if (spec.activation.gated()) gemm(view.gate, x.data(), g.data(), g_sum.data());
  gemm(view.up, x.data(), u.data(), u_sum.data());
  std::vector<double> h_error(width);
  const double first = (static_cast<double>(hidden) / 16 + 1) * 0x1p-22 + 0x1p-23;
  for (std::size_t i = 0; i < width; ++i) {
    h[i] = reference::oracle_activate(spec.activation, g[i], u[i]);
    h_error[i] = h_bound(spec.activation, g[i], u[i], first * g_sum[i], first * u_sum[i], h[i]);
  }
  Bounded row = {std::vector<double>(hidden), std::vector<double>(hidden)};
  std::vector<double> sum(hidden), error(hidden), ignored(hidden);
  gemm(view.down, h.data(), row.value.data(), sum.data());
  gemm(view.down, h_error.data(), ignored.data(), error.data());
  const double second = (static_cast<double>(width) / 16 + 8) * 0x1p-22;
  for (std::size_t n = 0; n < hidden; ++n) {
    row.bound[n] = error[n] + second * (sum[n] + error[n]) +
                   rounding_bound(row_dtype, std::abs(row.value[n]) + error[n]);
  }
  return row;
}

/// A step's input, on the host.
struct LayerInput {
  test::TestTokens tokens;
  std::vector<float> weights;  // [num_tokens, top_k]
  std::vector<float> shared;   // [num_tokens, H], or empty
  std::int64_t num_valid = 1 << 30;
};

/// y of one token: the weighted rows, the shared row, one rounding.
inline Bounded token_row(const test::TestLayer& layer,
                         const LayerInput& input,
                         std::size_t token,
                         DType row_dtype,
                         DType y_dtype) {
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  const auto top_k = static_cast<std::size_t>(layer.spec.top_k);
  Bounded y = {std::vector<double>(hidden), std::vector<double>(hidden)};
  if (static_cast<std::int64_t>(token) >= input.num_valid) return y;
  const float* x_f32 = input.tokens.x_f32.data() + token * hidden;
  const std::vector<double> x(x_f32, x_f32 + hidden);
  std::vector<double> size(hidden);
  for (std::size_t slot = 0; slot < top_k; ++slot) {
    const std::int32_t id = input.tokens.topk_idx[token * top_k + slot];
    if (id < 0 || id >= layer.spec.num_experts) continue;
    const Bounded row =
        expert_row(layer.spec, layer.experts[static_cast<std::size_t>(id)], x, row_dtype);
    const double weight = input.weights[token * top_k + slot];
    for (std::size_t n = 0; n < hidden; ++n) {
      y.value[n] += weight * row.value[n];
      y.bound[n] += std::abs(weight) * row.bound[n];
      size[n] += std::abs(weight * row.value[n]) + std::abs(weight) * row.bound[n];
    }
  }
  for (std::size_t n = 0; n < hidden; ++n) {
    if (!input.shared.empty()) {
      y.value[n] += input.shared[token * hidden + n];
      size[n] += std::abs(input.shared[token * hidden + n]);
    }
    y.bound[n] += size[n] * static_cast<double>(top_k + 2) * 0x1p-23;
    y.bound[n] += rounding_bound(y_dtype, std::abs(y.value[n]) + y.bound[n]);
  }
  return y;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_LAYER_ORACLE_H_
