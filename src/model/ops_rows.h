// SPDX-License-Identifier: Apache-2.0
//
// Operations on single rows, the same for every host implementation of DenseOps; these differ in
// their linears, their attention and in who runs the rows.
#ifndef HALFBYTE_MODEL_OPS_ROWS_H_
#define HALFBYTE_MODEL_OPS_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "formats/owned_matrix.h"
#include "model/ops.h"

namespace halfbyte {

/// How a linear takes its input.
struct LinearInput {
  bool quantized = false;              // w4a4: x goes through NVFP4 with input_scale
  float input_scale = 0.0F;            // decode side
  float alpha = 1.0F;                  // quantized: y = alpha * sum, the global scale included
  std::vector<float> pre_quant_scale;  // [cols]: multiplied into x first; empty: none
  bool is_x_itself() const { return !quantized && pre_quant_scale.empty(); }
};
/// w4a4 asked of another format than NVFP4 is w4a16, not an error. kNotFound: its input scale is
/// absent.
Result<LinearInput> linear_input(const LoadedLinear& linear, ActivationMode mode);

/// x with its columns scaled, rounded like any other activation when `round_bf16`: rows of x.cols
/// at `dst`, or x itself where the linear scales none. Rows are independent.
Rows scale_columns(const LinearInput& input, Rows x, bool round_bf16, float* dst);

/// Scratch of transform_input for `rows` rows of `cols` columns.
struct InputScratch {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
  std::vector<float> values;
  void reserve(std::int64_t rows, std::int64_t cols);
};
/// x as the linear's weights see it: its columns scaled, then, quantized, codes times block scales
/// without the input scale. A view of scratch, or x itself.
Rows transform_input(const LinearInput& input, Rows x, bool round_bf16, InputScratch& scratch);

/// Row `token_id` of an embedding table.
void embed_row(const CanonicalMatrix& table, std::int32_t token_id, bool round_bf16, float* y);

/// Rounds y to bf16 when `round_bf16`, and first adds `bias` [y.cols] unless it is empty.
void finish_row(float* y, std::int64_t cols, std::span<const float> bias, bool round_bf16);

void copy_heads_of_token(std::int64_t token, Heads x, Heads y);
void rope_token(const RopeTable& table, const StepView& step, std::int64_t token, Heads x);
/// Stores one row of pool.row_width values.
void store_row(const KvPool& pool, std::int64_t cache_row, const float* x);
/// Reads columns [column, column + width) of a row back.
void read_row(const KvPool& pool,
              std::int64_t cache_row,
              std::int64_t column,
              std::int64_t width,
              float* dst);
void activate_range(const ActivationSpec& activation,
                    const float* gate,
                    const float* up,
                    std::int64_t count,
                    bool round_bf16,
                    float* h);
void add_row(float* x, const float* y, std::int64_t cols, bool round_bf16);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_OPS_ROWS_H_
