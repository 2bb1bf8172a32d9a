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
  const combine_rows::Params params = {args,        shape.num_experts, shape.hidden_size,
                                       shape.top_k, shape.row_dtype,   shape.y_dtype};
  const auto column_blocks = ceil_div(shape.hidden_size, config.columns_per_block);
  const cuda::Grid grid = {
      dim3(static_cast<unsigned>(shape.num_tokens), static_cast<unsigned>(column_blocks)),
      config.columns_per_block / 4, 0};
  return cuda::launch_overlapped("combine_rows", combine_rows::combine_kernel, grid, stream,
                                 params);
}

}  // namespace halfbyte::sm90
