// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/combine_rows.cuh"

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::cuda {

Status launch(const CombineRowsShape& shape,
              const CombineRowsConfig& config,
              const CombineRowsArgs& args,
              CUstream_st* stream) {
  if (shape.num_tokens == 0) return {};
  combine_rows::Params params = {};
  params.args = args;
  params.num_tokens = shape.num_tokens;
  params.hidden_size = shape.hidden_size;
  params.num_experts = static_cast<int>(shape.num_experts);
  params.columns_per_warp = config.columns_per_warp;
  params.parts = static_cast<int>(ceil_div(shape.hidden_size, config.columns_per_warp));
  params.top_k = shape.top_k;
  params.y_dtype = shape.y_dtype;
  const auto blocks = ceil_div(shape.num_tokens * params.parts, combine_rows::kNumWarps);
  const Grid grid = {dim3(static_cast<unsigned>(blocks)), 32 * combine_rows::kNumWarps, 0};
  const auto kernel = shape.row_dtype == DType::kF32 ? combine_rows::combine_kernel<true>
                                                     : combine_rows::combine_kernel<false>;
  return launch_overlapped("combine_rows", kernel, grid, stream, params);
}

}  // namespace halfbyte::cuda
