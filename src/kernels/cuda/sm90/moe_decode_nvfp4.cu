// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/moe_decode_nvfp4.cuh"

#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::sm90 {
namespace {

moe_decode::KernelPointer find_kernel(const MoeDecodeShape& shape, const MoeDecodeTile& tile) {
  switch (shape.tokens) {
    case DecodeTokens::kBf16:
      return moe_decode::find_kernel<DecodeTokens::kBf16>(tile);
    case DecodeTokens::kGrid:
      return moe_decode::find_kernel<DecodeTokens::kGrid>(tile);
    case DecodeTokens::kE4m3:
      return moe_decode::find_kernel<DecodeTokens::kE4m3>(tile);
  }
  return nullptr;
}

int h_arrivals(const MoeDecodeShape& shape, const MoeDecodeTile& tile) {
  if (shape.tokens == DecodeTokens::kE4m3) return static_cast<int>(shape.h_blocks());
  return static_cast<int>(shape.gate_up().row_cells()) * tile.finishers(shape.tokens);
}

moe_decode::Gemm make_gemm(const std::uint8_t* weights,
                           const float* row_factor,
                           const WeightLayout& layout,
                           const MoeDecodeTile& tile) {
  return {.weights = weights,
          .row_factor = row_factor,
          .bytes_per_expert = layout.bytes_per_expert(),
          .rows = static_cast<int>(layout.rows()),
          .row_tiles = static_cast<int>(layout.row_cells()) / tile.row_groups,
          .col_cells = static_cast<int>(layout.col_cells())};
}

}  // namespace

Status reset_counters(const MoeDecodeShape& shape, std::int32_t* counters, CUstream_st* stream) {
  const auto bytes = static_cast<std::size_t>(shape.num_counters()) * sizeof(*counters);
  return device::cuda_status(cudaMemsetAsync(counters, 0, bytes, stream), "reset counters");
}

Status warm_up(const MoeDecodeShape& shape, const MoeDecodeConfig& config) {
  const moe_decode::KernelPointer kernel = find_kernel(shape, config.tile);
  if (kernel == nullptr) return {StatusCode::kUnsupported, config.to_string() + ": not compiled"};
  return cuda::allow_shared_bytes("moe_decode_nvfp4", kernel,
                                  static_cast<std::size_t>(config.shared_bytes));
}

Status launch(const MoeDecodeShape& shape,
              const MoeDecodeConfig& config,
              const MoeDecodeArgs& args,
              CUstream_st* stream) {
  HALFBYTE_RETURN_IF_ERROR(warm_up(shape, config));
  moe_decode::Params params = {};
  params.args = args;
  params.gemm[0] = make_gemm(args.gate_up, args.gate_up_factor, shape.gate_up(), config.tile);
  params.gemm[1] = make_gemm(args.down, args.down_factor, shape.down(), config.tile);
  params.num_experts = shape.num_local_experts;
  params.hidden_size = static_cast<int>(shape.hidden_size);
  params.h_cols = static_cast<int>(shape.h_cols());
  params.gated = shape.gated;
  params.rows_f32 = shape.row_dtype == DType::kF32;
  params.activation = cuda::make_gated_activation(args.activation);
  params.h_blocks = static_cast<int>(shape.h_blocks());
  params.h_arrivals = h_arrivals(shape, config.tile);
  const cuda::Grid grid = {dim3(static_cast<unsigned>(config.num_ctas)), moe_decode::kNumThreads,
                           static_cast<std::size_t>(config.shared_bytes)};
  return cuda::launch_overlapped("moe_decode_nvfp4", find_kernel(shape, config.tile), grid, stream,
                                 params);
}

}  // namespace halfbyte::sm90
