// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/expert_operand.h"

#include <algorithm>

#include "formats/convert.h"
#include "formats/e4m3.h"
#include "formats/e4m3_fold.h"
#include "formats/nvfp4.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/scratch.h"

namespace halfbyte::reference {
namespace {

// Keeps a division by a finite for scales that the loader would have refused.
constexpr float kSmallestEncodeScale = 1e-12F;

void widen_e4m3(const std::uint8_t* codes, std::int64_t size, float* dst) {
  for (std::int64_t i = 0; i < size; ++i)
    dst[i] = e4m3_to_f32(codes[i]);
}

Operand make_nvfp4_operand(
    const float* row, std::int64_t size, float s, ActivationMode mode, OperandBuffers& buffers) {
  std::uint8_t* codes = scratch_at_least(buffers.codes, size / 2);
  std::uint8_t* block_scale = scratch_at_least(buffers.block_scale, size / kNvfp4BlockSize);
  quantize_activations(row, 1, size, s, codes, block_scale);
  return make_quantized_operand(mode, codes, block_scale, size, s, buffers);
}

Operand make_e4m3_operand(const float* row, std::int64_t size, OperandBuffers& buffers) {
  std::uint8_t* codes = scratch_at_least(buffers.codes, size);
  float* values = scratch_at_least(buffers.values, size);
  float* col_scale =
      scratch_at_least(buffers.col_scale, (size + kE4m3BlockCols - 1) / kE4m3BlockCols);
  quantize_row_to_e4m3(row, size, codes, col_scale);
  widen_e4m3(codes, size, values);
  return {.values = values, .col_scale = col_scale, .size = size, .weights_as_e4m3 = true};
}

}  // namespace

Operand make_operand(
    ActivationMode mode, const float* row, std::int64_t size, float s, OperandBuffers& buffers) {
  switch (mode) {
    case ActivationMode::kW4a4:
      return make_nvfp4_operand(row, size, s, mode, buffers);
    case ActivationMode::kW4a4Dynamic:
      return make_nvfp4_operand(row, size, dynamic_row_scale(row, size), mode, buffers);
    case ActivationMode::kW4a8:
      return make_e4m3_operand(row, size, buffers);
    case ActivationMode::kW4a16:
    case ActivationMode::kAuto:
      break;
  }
  return {.values = row, .size = size};
}

Operand make_quantized_operand(ActivationMode mode,
                               const std::uint8_t* codes,
                               const std::uint8_t* block_scale,
                               std::int64_t size,
                               float s,
                               OperandBuffers& buffers) {
  float* values = scratch_at_least(buffers.values, size);
  decode_nvfp4_row(codes, block_scale, size, values);
  const float a = 1.0F / s;
  return {.values = values,
          .size = size,
          .encode_scale = mode == ActivationMode::kW4a4 ? std::max(a, kSmallestEncodeScale) : a,
          .row_scale = s,
          .is_nvfp4 = true};
}

float operand_alpha(const Operand& operand, float global_scale) {
  if (!operand.is_nvfp4) return global_scale;
  return operand.row_scale == 0.0F ? 0.0F : global_scale / operand.encode_scale;
}

int read_weight_row(const CanonicalMatrix& matrix, std::int64_t row, bool as_e4m3, float* dst) {
  if (!as_e4m3 || matrix.format != WeightFormat::kNvfp4) {
    decode_row(matrix, row, dst);
    return 0;
  }
  thread_local std::vector<std::uint8_t> buffer;
  std::uint8_t* folded = scratch_at_least(buffer, matrix.cols);
  const E4m3Fold fold = fold_row_to_e4m3(
      matrix.codes.data() + row * (matrix.cols / 2),
      matrix.block_scale.data() + row * (matrix.cols / kNvfp4BlockSize), matrix.cols, folded);
  widen_e4m3(folded, matrix.cols, dst);
  return fold.exponent;
}

double dot_operand(const Operand& operand, const float* weight_row, std::int64_t size) {
  if (operand.col_scale == nullptr) return dot(operand.values, weight_row, size);
  double sum = 0.0;
  for (std::int64_t first = 0; first < size; first += kE4m3BlockCols) {
    const std::int64_t width = std::min(kE4m3BlockCols, size - first);
    sum += static_cast<double>(operand.col_scale[first / kE4m3BlockCols]) *
           dot(operand.values + first, weight_row + first, width);
  }
  return sum;
}

}  // namespace halfbyte::reference
