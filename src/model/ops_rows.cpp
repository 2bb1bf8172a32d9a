// SPDX-License-Identifier: Apache-2.0
#include "model/ops_rows.h"

#include <algorithm>

#include "formats/bf16.h"
#include "formats/convert.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/dense.h"

namespace halfbyte {
namespace {

std::byte* row_begin(const KvPool& pool, std::int64_t cache_row) {
  return pool.data + cache_row * pool.row_width * dtype_bytes(pool.dtype);
}

// x through NVFP4 and back, without the input scale. dst may be x.
void requantize(Rows x, float input_scale, InputScratch& scratch, float* dst) {
  quantize_activations(x.data, x.rows, x.cols, input_scale, scratch.codes.data(),
                       scratch.block_scale.data());
  for (std::int64_t i = 0; i < x.rows; ++i) {
    decode_activation_row(scratch.codes.data() + i * x.cols / 2,
                          scratch.block_scale.data() + i * x.cols / kNvfp4BlockSize, x.cols,
                          dst + i * x.cols);
  }
}

}  // namespace

Result<LinearInput> linear_input(const LoadedLinear& linear, ActivationMode mode) {
  const bool wants_w4a4 =
      mode == ActivationMode::kW4a4 && linear.matrix.format == WeightFormat::kNvfp4;
  if (!wants_w4a4) return LinearInput{.pre_quant_scale = linear.pre_quant_scale};
  if (!(linear.input_scale > 0.0F)) {
    return Status(StatusCode::kNotFound,
                  "input_scale: absent, and w4a4 quantises this linear's input with it; use "
                  "--linear-activation-mode w4a16");
  }
  const float encode_scale = std::max(1.0F / linear.input_scale, 1e-12F);
  return LinearInput{true, linear.input_scale, linear.matrix.global_scale / encode_scale,
                     linear.pre_quant_scale};
}

void InputScratch::reserve(std::int64_t rows, std::int64_t cols) {
  const auto count = static_cast<std::size_t>(rows * cols);
  codes.resize(count / 2);
  block_scale.resize(count / kNvfp4BlockSize);
  values.resize(count);
}

Rows scale_columns(const LinearInput& input, Rows x, bool round_bf16, float* dst) {
  if (input.pre_quant_scale.empty()) return x;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float* src = x.data + i * x.row_stride;
    float* row = dst + i * x.cols;
    for (std::int64_t c = 0; c < x.cols; ++c)
      row[c] = src[c] * input.pre_quant_scale[static_cast<std::size_t>(c)];
    finish_row(row, x.cols, {}, round_bf16);
  }
  return Rows(dst, x.rows, x.cols);
}

Rows transform_input(const LinearInput& input, Rows x, bool round_bf16, InputScratch& scratch) {
  const Rows scaled = scale_columns(input, x, round_bf16, scratch.values.data());
  if (!input.quantized) return scaled;
  requantize(scaled, input.input_scale, scratch, scratch.values.data());
  return Rows(scratch.values.data(), x.rows, x.cols);
}

void embed_row(const CanonicalMatrix& table, std::int32_t token_id, bool round_bf16, float* y) {
  dequantize_row(table, token_id, y);
  finish_row(y, table.cols, {}, round_bf16);
}

void finish_row(float* y, std::int64_t cols, std::span<const float> bias, bool round_bf16) {
  for (std::size_t i = 0; i < bias.size(); ++i)
    y[i] += bias[i];
  if (!round_bf16) return;
  for (std::int64_t i = 0; i < cols; ++i)
    y[i] = round_to_bf16(y[i]);
}

void copy_heads_of_token(std::int64_t token, Heads x, Heads y) {
  for (std::int64_t h = 0; h < x.num_heads; ++h) {
    std::copy_n(x.data + token * x.token_stride + h * x.head_stride, x.width,
                y.data + token * y.token_stride + h * y.head_stride);
  }
}

void rope_token(const RopeTable& table, const StepView& step, std::int64_t token, Heads x) {
  const std::int64_t angles = token * table.num_pairs();
  for (std::int64_t h = 0; h < x.num_heads; ++h) {
    reference::rope(x.data + token * x.token_stride + h * x.head_stride, step.cos + angles,
                    step.sin + angles, table.num_pairs(), table.interleaved);
  }
}

void store_row(const KvPool& pool, std::int64_t cache_row, const float* x) {
  std::byte* row = row_begin(pool, cache_row);
  if (pool.dtype != DType::kF8E4m3) {
    narrow_from_f32(pool.dtype, x, pool.row_width, row);
    return;
  }
  for (std::int64_t i = 0; i < pool.row_width; ++i)
    row[i] = std::byte{f32_to_e4m3(x[i] / pool.scale)};
}

void read_row(const KvPool& pool,
              std::int64_t cache_row,
              std::int64_t column,
              std::int64_t width,
              float* dst) {
  const std::byte* row = row_begin(pool, cache_row) + column * dtype_bytes(pool.dtype);
  widen_to_f32(pool.dtype, row, width, dst);
  if (pool.dtype != DType::kF8E4m3) return;
  for (std::int64_t i = 0; i < width; ++i)
    dst[i] *= pool.scale;
}

void activate_range(const ActivationSpec& activation,
                    const float* gate,
                    const float* up,
                    std::int64_t count,
                    bool round_bf16,
                    float* h) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = reference::activate(activation, gate[i], up[i]);
    h[i] = round_bf16 ? round_to_bf16(value) : value;
  }
}

void add_row(float* x, const float* y, std::int64_t cols, bool round_bf16) {
  for (std::int64_t i = 0; i < cols; ++i) {
    const float sum = x[i] + y[i];
    x[i] = round_bf16 ? round_to_bf16(sum) : sum;
  }
}

}  // namespace halfbyte
