// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/sm90/combine_rows.h"

namespace halfbyte::sm90 {

std::string CombineRowsConfig::to_string() const {
  return fmt::format("combine_rows: {} columns a block", columns_per_block);
}

Status can_run(const CombineRowsShape& shape) {
  if (shape.top_k < 1 || shape.top_k > 64) {
    return {StatusCode::kUnsupported,
            fmt::format("combine_rows: {} experts a token, want 1 to 64", shape.top_k)};
  }
  if (shape.hidden_size < 16 || shape.hidden_size % 16 != 0) {
    return {StatusCode::kUnsupported,
            fmt::format("combine_rows: hidden size {}, want a multiple of 16", shape.hidden_size)};
  }
  if (shape.row_dtype != DType::kF32 && shape.row_dtype != DType::kBf16) {
    return {StatusCode::kUnsupported,
            fmt::format("combine_rows: rows of {}, want float32 or bfloat16",
                        dtype_name(shape.row_dtype))};
  }
  if (shape.y_dtype != DType::kF32 && shape.y_dtype != DType::kBf16 &&
      shape.y_dtype != DType::kF16) {
    return {StatusCode::kUnsupported,
            fmt::format("combine_rows: output of {}, want float32, bfloat16 or float16",
                        dtype_name(shape.y_dtype))};
  }
  return {};
}

// Few tokens: narrow blocks, so that more SMs take part in a sum that is latency only.
CombineRowsConfig select_config(const CombineRowsShape& shape) {
  return {.columns_per_block = shape.num_tokens <= 16 ? 256 : 1024};
}

}  // namespace halfbyte::sm90
