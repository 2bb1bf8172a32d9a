// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.cuh"

namespace halfbyte::sm90 {
namespace {

grouped_gemm_fp8::KernelPointer find_kernel(const GroupedGemmFp8Shape& shape, int tile_tokens) {
  return shape.output == GemmOutput::kActivated
             ? grouped_gemm_fp8::find_kernel<GemmOutput::kActivated>(tile_tokens)
             : grouped_gemm_fp8::find_kernel<GemmOutput::kRows>(tile_tokens);
}

}  // namespace

Status launch(const GroupedGemmFp8Shape& shape,
              const GroupedGemmFp8Config& config,
              const GroupedGemmFp8Args& args,
              CUstream_st* stream) {
  const grouped_gemm_fp8::KernelPointer kernel = find_kernel(shape, config.tile_tokens);
  if (kernel == nullptr) return {StatusCode::kUnsupported, config.to_string() + ": not compiled"};
  const auto shared_bytes = static_cast<std::size_t>(config.shared_bytes);
  HALFBYTE_RETURN_IF_ERROR(
      cuda::allow_shared_bytes("grouped_gemm_fp8_nvfp4", kernel, shared_bytes));
  grouped_gemm_fp8::Params params = {};
  params.args = args;
  params.bytes_per_expert = shape.weights.bytes_per_expert();
  params.num_experts = static_cast<int>(shape.weights.shape.num_experts);
  params.row_tiles = static_cast<int>(shape.weights.rows() / kRowAlignment);
  params.col_blocks = static_cast<int>(shape.weights.padded_cols() / kFp8BlockCols);
  params.output_cols = static_cast<int>(shape.weights.shape.half_rows);
  params.activation = cuda::make_gated_activation(args.activation);
  params.gated = shape.weights.shape.num_halves == 2;
  params.rows_f32 = shape.row_dtype == DType::kF32;
  const cuda::Grid grid = {dim3(static_cast<unsigned>(config.num_ctas)),
                           fp8_num_threads(config.tile_tokens), shared_bytes,
                           static_cast<unsigned>(fp8_cluster_ctas(config.tile_tokens))};
  return cuda::launch_overlapped("grouped_gemm_fp8_nvfp4", kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90
