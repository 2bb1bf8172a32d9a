// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/combine_rows.cuh"

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::sm90 {

Status launch(const CombineRowsShape& shape,
              const CombineRowsConfig& config,
              const CombineRowsArgs& args,
              CUstream_st* stream) {
  if (shape.num_tokens == 0) return {};
  combine_rows::Params params = {};
  params.args = args;
  params.hidden_size = shape.hidden_size;
  params.num_experts = static_cast<int>(shape.num_experts);
  params.columns_per_block = config.columns_per_block;
  params.top_k = shape.top_k;
  params.row_dtype = shape.row_dtype;
  params.y_dtype = shape.y_dtype;
  const auto column_blocks = ceil_div(shape.hidden_size, config.columns_per_block);
  const cuda::Grid grid = {
      dim3(static_cast<unsigned>(shape.num_tokens), static_cast<unsigned>(column_blocks)),
      config.columns_per_block < 1024 ? config.columns_per_block / 4 : 256, 0};
  return cuda::launch_overlapped("combine_rows", combine_rows::combine_kernel, grid, stream,
                                 params);
}

}  // namespace halfbyte::sm90
