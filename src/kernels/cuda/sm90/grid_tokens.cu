// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grid_tokens.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/load_values.cuh"
#include "kernels/cuda/common/row_range.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/grid_values.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 128;

struct Params {
  GridTokensArgs args;
  std::int64_t num_rows;
  std::int64_t half_groups;  // of a row
};

/// Half group `i` of all rows; zeros from `end` on.
__device__ __forceinline__ void load(const Params& p,
                                     std::int64_t i,
                                     std::int64_t end,
                                     float (&v)[kHalfGroup]) {
  cuda::widen_bf16(i < end ? static_cast<const uint4*>(p.args.x)[i] : uint4{}, v);
}

/// Half groups first + threadIdx.x, .. up to `end`, by whole warps.
__device__ __forceinline__ void quantize(const Params& p,
                                         std::int64_t first,
                                         std::int64_t end,
                                         std::int64_t stride,
                                         const cuda::QuantizeScale& scale) {
  for (std::int64_t i = first + threadIdx.x; i - threadIdx.x % 32 < end; i += stride) {
    float v[kHalfGroup];
    load(p, i, end, v);
    const uint4 grid = grid_half_group(v, scale);
    if (i < end) static_cast<uint4*>(p.args.grid)[i] = grid;
  }
}

/// A row that finds its scale first.
__device__ __forceinline__ void quantize_row(const Params& p, std::int64_t row) {
  const std::int64_t first = row * p.half_groups;
  const std::int64_t end = first + p.half_groups;
  cuda::RowRange range;
  for (std::int64_t i = first + threadIdx.x; i < end; i += kNumThreads) {
    float v[kHalfGroup];
    load(p, i, end, v);
    for (const float value : v)
      range.add(value);
  }
  const float s = cuda::reduce_range<kNumThreads>(range).scale();
  quantize(p, first, end, kNumThreads, cuda::make_quantize_scale(s));
  if (threadIdx.x == 0) p.args.row_scale[row] = s;
}

/// With one scale for all rows the rows do not matter, so that a few use many multiprocessors.
__global__ void __launch_bounds__(kNumThreads) grid_kernel(const __grid_constant__ Params p) {
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  if (p.args.scale != nullptr) {
    quantize(p, std::int64_t{blockIdx.x} * kNumThreads, p.num_rows * p.half_groups,
             std::int64_t{gridDim.x} * kNumThreads, *p.args.scale);
  } else {
    for (std::int64_t row = blockIdx.x; row < p.num_rows; row += gridDim.x)
      quantize_row(p, row);
  }
}

}  // namespace

Status launch_grid_tokens(std::int64_t num_rows,
                          std::int64_t cols,
                          const GridTokensArgs& args,
                          CUstream_st* stream) {
  if (num_rows == 0) return {};
  constexpr std::int64_t kMaxBlocks = 4096;  // some waves; a block takes one part after the other
  const Params params = {args, num_rows, cols / kHalfGroup};
  const std::int64_t blocks =
      args.scale == nullptr ? num_rows : ceil_div(num_rows * params.half_groups, kNumThreads);
  const cuda::Grid grid = {dim3(static_cast<unsigned>(std::min(blocks, kMaxBlocks))), kNumThreads,
                           0};
  return cuda::launch_overlapped("grid_tokens", grid_kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90
