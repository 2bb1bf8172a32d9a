// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/e4m3_rows.h"

#include <cuda_bf16.h>

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/load_values.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/e4m3_blocks.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 128;

struct Params {
  E4m3RowsArgs args;
  std::int64_t num_rows;
  int cols;
  int num_rounds;  // of kWarpBlocks blocks a row
};

/// A warp takes four blocks of a row.
__global__ void __launch_bounds__(kNumThreads) e4m3_rows_kernel(const __grid_constant__ Params p) {
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warp = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const std::int64_t row = warp / p.num_rounds;
  if (row >= p.num_rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block = warp % p.num_rounds * kWarpBlocks + lane / kLanesPerBlock;
  const int col = block * kFp8BlockCols + lane % kLanesPerBlock * kLaneCols;
  const std::int64_t at = row * p.cols + col;
  float v[kLaneCols] = {};
  if (col < p.cols) cuda::load_bf16(static_cast<const __nv_bfloat16*>(p.args.x) + at, v);
  const E4m3Block quantized = quantize_block(v);
  if (col >= p.cols) return;
  store_f16(static_cast<__nv_bfloat16*>(p.args.dst) + at, quantized.words);
  if (lane % kLanesPerBlock == 0)
    p.args.block_scale[row * block_scale_stride(p.cols) + block] = quantized.scale;
}

}  // namespace

Status launch_e4m3_rows(std::int64_t num_rows,
                        std::int64_t cols,
                        const E4m3RowsArgs& args,
                        CUstream_st* stream) {
  if (num_rows == 0) return {};
  const std::int64_t rounds = ceil_div(cols, kWarpBlocks * kFp8BlockCols);
  const Params params = {args, num_rows, static_cast<int>(cols), static_cast<int>(rounds)};
  const std::int64_t blocks = ceil_div(num_rows * rounds * 32, kNumThreads);
  const cuda::Grid grid = {dim3(static_cast<unsigned>(blocks)), kNumThreads, 0};
  return cuda::launch_overlapped("e4m3_rows", e4m3_rows_kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90
