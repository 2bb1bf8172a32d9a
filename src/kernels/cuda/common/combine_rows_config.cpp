// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/checked.h"
#include "kernels/cuda/common/combine_rows.h"

namespace halfbyte::cuda {

std::string CombineRowsConfig::to_string() const {
  return fmt::format("combine_rows: {} columns a warp", columns_per_warp);
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

// Parts as narrow as it takes to fill every multiprocessor a few times over: a token with many rows
// must not keep its warp long after the others. No narrower: each works out the order of its
// token's sum again.
CombineRowsConfig select_config(const CombineRowsShape& shape) {
  constexpr std::int64_t kEnoughWarps = 24576;
  std::int64_t columns = shape.num_tokens <= 64 ? 256 : 512;
  while (columns < shape.hidden_size &&
         shape.num_tokens * ceil_div(shape.hidden_size, columns) > kEnoughWarps)
    columns *= 2;
  return {.columns_per_warp = static_cast<int>(columns)};
}

}  // namespace halfbyte::cuda
