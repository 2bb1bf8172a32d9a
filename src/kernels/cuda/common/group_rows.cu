// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/group_rows.cuh"

#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::cuda {

Status launch(const GroupRowsShape& shape,
              const GroupRowsConfig& config,
              const GroupRowsArgs& args,
              CUstream_st* stream) {
  if (shape.num_tokens == 0) return {};
  group_rows::Params params = {};
  params.args = args;
  params.num_tokens = shape.num_tokens;
  params.num_experts = shape.num_experts;
  params.first_expert = shape.first_expert;
  params.top_k = shape.top_k;
  params.num_local_experts = shape.num_local_experts;
  params.num_slots = static_cast<int>(shape.num_slots());
  params.num_blocks = config.num_blocks;
  const bool counted_before = config.workspace_bytes > 0;
  const auto blocks = static_cast<unsigned>(config.num_blocks);
  const Grid grid = {dim3(blocks), group_rows::kNumThreads,
                     static_cast<std::size_t>(config.shared_bytes), counted_before ? 1 : blocks};
  if (counted_before) {
    params.block_counts = static_cast<std::int32_t*>(args.workspace);
    HALFBYTE_RETURN_IF_ERROR(
        launch_overlapped("group_rows: count", group_rows::count_kernel, grid, stream, params));
  }
  return launch_overlapped("group_rows: place", group_rows::place_kernel, grid, stream, params);
}

}  // namespace halfbyte::cuda
