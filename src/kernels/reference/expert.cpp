// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/expert.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/convert.h"
#include "formats/nvfp4.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/expert_operand.h"
#include "kernels/reference/scratch.h"

namespace halfbyte::reference {
namespace {

/// One expert being run on one row.
struct Job {
  const CanonicalExpert& expert;
  const ActivationSpec& activation;
  ActivationMode mode;
  const ExpertScalars& scalars;
  const ExpertTaps& taps;
};

/// dst [matrix.rows] = RN(RN(sum) * alpha) for every row of the weight.
void multiply(const CanonicalMatrix& matrix, const Operand& operand, float alpha, float* dst) {
  thread_local std::vector<float> buffer;
  float* weight_row = scratch_at_least(buffer, matrix.cols);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const int exponent = read_weight_row(matrix, row, operand.weights_as_e4m3, weight_row);
    const double sum = dot_operand(operand, weight_row, matrix.cols);
    dst[row] = static_cast<float>(std::ldexp(sum, -exponent)) * alpha;
  }
}

void run_gemm1(const Job& job, const Operand& x, float* h) {
  thread_local std::vector<float> buffer;
  const std::int64_t width = job.expert.up.rows;
  float* gate = scratch_at_least(buffer, 2 * width);
  float* up = gate + width;
  std::fill_n(gate, width, 0.0F);
  if (job.activation.gated())
    multiply(job.expert.gate, x, operand_alpha(x, job.scalars.gate_global_scale), gate);
  multiply(job.expert.up, x, operand_alpha(x, job.scalars.up_global_scale), up);
  for (std::int64_t i = 0; i < width; ++i)
    h[i] = activate(job.activation, gate[i], up[i]);
}

void write_taps(const ExpertTaps& taps,
                const float* h,
                const OperandBuffers& buffers,
                const Operand& operand) {
  const std::int64_t width = operand.size;
  if (taps.h != nullptr) std::copy_n(h, width, taps.h);
  if (!operand.is_nvfp4) return;
  if (taps.h_codes != nullptr) std::copy_n(buffers.codes.data(), width / 2, taps.h_codes);
  if (taps.h_block_scale != nullptr)
    std::copy_n(buffers.block_scale.data(), width / kNvfp4BlockSize, taps.h_block_scale);
  if (taps.h_row_scale != nullptr) *taps.h_row_scale = operand.row_scale;
}

void run_from_operand(const Job& job, const Operand& x, float* y) {
  thread_local std::vector<float> h_buffer;
  thread_local OperandBuffers buffers;
  const std::int64_t width = job.expert.up.rows;
  float* h = scratch_at_least(h_buffer, width);
  run_gemm1(job, x, h);
  const Operand operand = make_operand(job.mode, h, width, job.scalars.s2, buffers);
  write_taps(job.taps, h, buffers, operand);
  multiply(job.expert.down, operand, operand_alpha(operand, job.scalars.down_global_scale), y);
}

}  // namespace

void run_expert_row(const CanonicalExpert& expert,
                    const ActivationSpec& activation,
                    ActivationMode mode,
                    const ExpertScalars& scalars,
                    const float* x,
                    float* y,
                    const ExpertTaps& taps) {
  thread_local OperandBuffers buffers;
  const Operand operand = make_operand(mode, x, expert.up.cols, scalars.s1, buffers);
  run_from_operand({expert, activation, mode, scalars, taps}, operand, y);
}

void run_expert_row_quantized(const CanonicalExpert& expert,
                              const ActivationSpec& activation,
                              ActivationMode mode,
                              const ExpertScalars& scalars,
                              const std::uint8_t* x_codes,
                              const std::uint8_t* x_block_scale,
                              float x_row_scale,
                              float* y,
                              const ExpertTaps& taps) {
  thread_local OperandBuffers buffers;
  const float s = mode == ActivationMode::kW4a4Dynamic ? x_row_scale : scalars.s1;
  const Operand operand =
      make_quantized_operand(mode, x_codes, x_block_scale, expert.up.cols, s, buffers);
  run_from_operand({expert, activation, mode, scalars, taps}, operand, y);
}

}  // namespace halfbyte::reference
