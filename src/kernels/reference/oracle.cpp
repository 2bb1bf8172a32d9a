// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "formats/bf16.h"
#include "formats/convert.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e4m3_fold.h"
#include "formats/nvfp4.h"
#include "kernels/reference/expert_operand.h"

namespace halfbyte::reference {
namespace {

double sigmoid(double x) {
  return x >= 0.0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x));
}

// (gate * sigmoid) * other with the library's rule for a vanishing sigmoid.
double gated(double gate, double sigmoid_value, double other) {
  if (sigmoid_value == 0.0 && !std::isnan(other)) return 0.0;
  return gate * sigmoid_value * other;
}

/// An operand's values in fp64 with its scalars applied, and its alpha for a global scale.
std::vector<double> operand_values(const Operand& operand) {
  std::vector<double> values(static_cast<std::size_t>(operand.size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(operand.values[i]);
    if (operand.col_scale != nullptr)
      values[i] *= static_cast<double>(operand.col_scale[i / kE4m3BlockCols]);
  }
  return values;
}

double operand_factor(const Operand& operand, float global_scale) {
  if (!operand.is_nvfp4) return static_cast<double>(global_scale);
  if (operand.row_scale == 0.0F) return 0.0;
  return static_cast<double>(global_scale) / static_cast<double>(operand.encode_scale);
}

void gemm_row(const CanonicalMatrix& matrix,
              bool as_e4m3,
              const double* x,
              double alpha,
              double* out,
              double* abs_sum) {
  std::vector<float> weight(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const int exponent = read_weight_row(matrix, row, as_e4m3, weight.data());
    double sum = 0.0;
    double magnitude = 0.0;
    for (std::size_t k = 0; k < weight.size(); ++k) {
      const double product = x[k] * static_cast<double>(weight[k]);
      sum += product;
      magnitude += std::fabs(product);
    }
    out[row] = alpha * std::ldexp(sum, -exponent);
    if (abs_sum != nullptr) abs_sum[row] = std::fabs(alpha) * std::ldexp(magnitude, -exponent);
  }
}

void multiply(const CanonicalMatrix& matrix,
              const Operand& operand,
              float global_scale,
              double* out) {
  const std::vector<double> x = operand_values(operand);
  gemm_row(matrix, operand.weights_as_e4m3, x.data(), operand_factor(operand, global_scale), out,
           nullptr);
}

std::vector<double> compute_h(const CanonicalExpert& expert,
                              const ActivationSpec& activation,
                              const ExpertScalars& scalars,
                              const Operand& x) {
  const auto width = static_cast<std::size_t>(expert.up.rows);
  std::vector<double> gate(width);
  std::vector<double> up(width);
  if (activation.gated()) multiply(expert.gate, x, scalars.gate_global_scale, gate.data());
  multiply(expert.up, x, scalars.up_global_scale, up.data());
  for (std::size_t i = 0; i < width; ++i)
    up[i] = oracle_activate(activation, gate[i], up[i]);
  return up;
}

// E2M1 * E4M3 in units of 2^-10.
std::int64_t units(std::uint8_t code, std::uint8_t block_scale) {
  return std::llrint(static_cast<double>(e2m1_to_f32(code)) *
                     static_cast<double>(e4m3_to_f32(block_scale)) * 0x1p10);
}

double lsb(std::uint8_t block_scale) {
  return std::ldexp(1.0, std::max(block_scale >> 3, 1) - 10);
}

}  // namespace

double oracle_activate(const ActivationSpec& activation, double g, double u) {
  switch (activation.function) {
    case ActivationFunction::kSwiglu:
      return gated(g, sigmoid(g), u);
    case ActivationFunction::kSwigluClamped: {
      const double limit = static_cast<double>(activation.limit);
      const double gate = std::min(g, limit);
      const double up = std::clamp(u, -limit, limit);
      return gated(gate, sigmoid(static_cast<double>(activation.alpha) * gate),
                   up + static_cast<double>(activation.beta));
    }
    case ActivationFunction::kRelu2: {
      const double positive = std::max(u, 0.0);
      return positive * positive;
    }
    case ActivationFunction::kGegluTanh: {
      const double inner = g + 0.044715 * g * g * g;
      return gated(g, sigmoid(2.0 * std::sqrt(2.0 / std::numbers::pi) * inner), u);
    }
  }
  return 0.0;
}

void oracle_gemm_row(
    const CanonicalMatrix& matrix, const double* x, double alpha, double* out, double* abs_sum) {
  gemm_row(matrix, false, x, alpha, out, abs_sum);
}

void oracle_expert_row(const CanonicalExpert& expert,
                       const ActivationSpec& activation,
                       ActivationMode mode,
                       const ExpertScalars& scalars,
                       const float* x,
                       bool bf16_h,
                       double* h,
                       double* y) {
  OperandBuffers buffers;
  const std::vector<double> exact_h = compute_h(
      expert, activation, scalars, make_operand(mode, x, expert.up.cols, scalars.s1, buffers));
  if (h != nullptr) std::copy(exact_h.begin(), exact_h.end(), h);
  if (mode == ActivationMode::kW4a16 && !bf16_h) {  // the only path where h stays fp64
    oracle_gemm_row(expert.down, exact_h.data(), static_cast<double>(scalars.down_global_scale), y,
                    nullptr);
    return;
  }
  std::vector<float> rounded(exact_h.begin(), exact_h.end());
  if (bf16_h) std::transform(rounded.begin(), rounded.end(), rounded.begin(), round_to_bf16);
  const Operand operand = make_operand(mode, rounded.data(), expert.up.rows, scalars.s2, buffers);
  multiply(expert.down, operand, scalars.down_global_scale, y);
}

std::int64_t exact_dot_units(const std::uint8_t* x_codes,
                             const std::uint8_t* x_block_scale,
                             const std::uint8_t* w_codes,
                             const std::uint8_t* w_block_scale,
                             std::int64_t cols) {
  std::int64_t sum = 0;
  for (std::int64_t k = 0; k < cols; ++k) {
    const std::int64_t block = k / kNvfp4BlockSize;
    sum += units(e2m1_code_at(x_codes, k), x_block_scale[block]) *
           units(e2m1_code_at(w_codes, k), w_block_scale[block]);
  }
  return sum;
}

bool fp32_sums_are_exact(const std::uint8_t* x_codes,
                         const std::uint8_t* x_block_scale,
                         const std::uint8_t* w_codes,
                         const std::uint8_t* w_block_scale,
                         std::int64_t cols) {
  std::int64_t magnitude = 0;
  double grid = std::numeric_limits<double>::infinity();
  for (std::int64_t k = 0; k < cols; ++k) {
    const std::uint8_t x_scale = x_block_scale[k / kNvfp4BlockSize];
    const std::uint8_t w_scale = w_block_scale[k / kNvfp4BlockSize];
    if (x_scale == 0 || w_scale == 0) continue;
    grid = std::min(grid, lsb(x_scale) * lsb(w_scale) / 4.0);
    magnitude += std::abs(units(e2m1_code_at(x_codes, k), x_scale) *
                          units(e2m1_code_at(w_codes, k), w_scale));
  }
  return static_cast<double>(magnitude) * kExactDotUnit <= 0x1p24 * grid;
}

double fp32_gemm_bound(double abs_sum, std::int64_t longest_chain) {
  return static_cast<double>(longest_chain) * 0x1p-24 * abs_sum;
}

double tensor_core_gemm_bound(double abs_sum, std::int64_t cols, std::int64_t split_parts) {
  return (static_cast<double>(cols) / 16.0 + static_cast<double>(split_parts)) * 0x1p-22 * abs_sum;
}

double rel_l2(std::span<const float> got, std::span<const double> want) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  if (error == 0.0) return 0.0;
  return std::sqrt(error / norm);
}

double max_abs_error(std::span<const float> got, std::span<const double> want) {
  double max = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (std::isnan(error)) return error;
    max = std::max(max, error);
  }
  return max;
}

}  // namespace halfbyte::reference
