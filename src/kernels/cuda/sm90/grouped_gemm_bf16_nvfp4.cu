// SPDX-License-Identifier: Apache-2.0
#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.cuh"

namespace halfbyte::sm90 {
namespace {

grouped_gemm::KernelPointer find_kernel(const GroupedGemmShape& shape, int tile_tokens) {
  switch (shape.output) {
    case GemmOutput::kActivated:
      return grouped_gemm::find_kernel<GemmOutput::kActivated>(tile_tokens);
    case GemmOutput::kRows:
      return grouped_gemm::find_kernel<GemmOutput::kRows>(tile_tokens);
    case GemmOutput::kQuantized:
      return grouped_gemm::find_kernel<GemmOutput::kQuantized>(tile_tokens);
    case GemmOutput::kScaledRows:
      return grouped_gemm::find_kernel<GemmOutput::kScaledRows>(tile_tokens);
  }
  return nullptr;
}

}  // namespace

Status launch(const GroupedGemmShape& shape,
              const GroupedGemmConfig& config,
              const GroupedGemmArgs& args,
              CUstream_st* stream) {
  const grouped_gemm::KernelPointer kernel = find_kernel(shape, config.tile_tokens);
  if (kernel == nullptr) return {StatusCode::kUnsupported, config.to_string() + ": not compiled"};
  const auto shared_bytes = static_cast<std::size_t>(config.shared_bytes);
  HALFBYTE_RETURN_IF_ERROR(
      cuda::allow_shared_bytes("grouped_gemm_bf16_nvfp4", kernel, shared_bytes));
  grouped_gemm::Params params = {};
  params.args = args;
  params.bytes_per_expert = shape.weights.bytes_per_expert();
  params.num_experts = static_cast<int>(shape.weights.shape.num_experts);
  params.row_cells = static_cast<int>(shape.weights.row_cells());
  params.row_tiles =
      static_cast<int>(ceil_div(shape.weights.row_cells(), grouped_gemm::kTileRowCells));
  params.col_cells = static_cast<int>(shape.weights.col_cells());
  params.output_cols = static_cast<int>(shape.output_cols());
  params.activation = cuda::make_gated_activation(args.activation);
  params.gated = shape.weights.shape.num_halves == 2;
  params.rows_f32 = shape.row_dtype == DType::kF32;
  const cuda::Grid grid = {dim3(static_cast<unsigned>(config.num_ctas)),
                           grouped_gemm::num_threads(config.tile_tokens), shared_bytes};
  return cuda::launch_overlapped("grouped_gemm_bf16_nvfp4", kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90
