// SPDX-License-Identifier: Apache-2.0
#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sm90/prepare_weights.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kThreads = 256;

struct Params {
  WeightLayout layout;
  std::int64_t expert_idx;
  PrepareFp8WeightsArgs args;

  __device__ __forceinline__ float* row_factors() const {
    return args.row_factor + expert_idx * layout.rows();
  }
};

/// A warp a stored row: 2^-p.
__global__ void row_factor_kernel(const Params p) {
  const std::int64_t row = (blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x) / 32;
  if (row >= p.layout.rows()) return;
  Element element = element_of(p.layout, p.expert_idx, row, 0);
  unsigned most = 0;
  for (element.col = threadIdx.x % 32 * 16; element.col < p.layout.shape.cols; element.col += 512)
    most = max(most, static_cast<unsigned>(scale_of(p.layout, p.args.weights, element)));
  most = __reduce_max_sync(~0U, most);
  if (threadIdx.x % 32 == 0)
    p.row_factors()[row] = ldexpf(1.0F, -fold_exponent(static_cast<std::uint8_t>(most)));
}

__device__ __forceinline__ FoldedScale folded_scale(const Params& p, const Element& element) {
  const std::int64_t row = stored_row(p.layout.shape.num_halves, element.half, element.row);
  // The factor is 2^-p.
  const int exponent = 127 - static_cast<int>(__float_as_uint(p.row_factors()[row]) >> 23);
  return fold_scale(scale_of(p.layout, p.args.weights, element), exponent);
}

__device__ __forceinline__ std::uint32_t code_word(const Params& p, const Element& first) {
  if (scale_of(p.layout, p.args.weights, first) == 0) return 0;
  const FoldedScale scale = folded_scale(p, first);
  const std::uint8_t* row =
      p.args.weights.codes[first.half] + first.row * (p.layout.shape.cols / 2) + first.col / 2;
  std::uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    const unsigned code = row[i / 2] >> (i % 2 * 4) & 15U;
    word |= place_fp8_code(i, fold_code(code, scale.steps_below));
  }
  return word;
}

__device__ __forceinline__ std::uint32_t scale_word(const Params& p, std::int64_t byte) {
  std::uint32_t word = 0;
  unsigned long long below = 0;
  for (int b = 0; b < 4; ++b) {
    const FoldedScale scale = folded_scale(p, fp8_owner_of(p.layout, byte + b).element);
    word |= static_cast<std::uint32_t>(scale.byte) << (8 * b);
    below += scale.steps_below > 0 ? 1 : 0;
  }
  if (below > 0) atomicAdd(p.args.num_blocks_below, below);
  return word;
}

/// A thread writes four bytes: a word of codes, or four scales.
__global__ void prepare_kernel(const Params p) {
  const std::int64_t begin = p.expert_idx * p.layout.bytes_per_expert();
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= p.layout.bytes_per_expert() / 4) return;
  const std::int64_t byte = begin + i * 4;
  const ByteOwner owner = fp8_owner_of(p.layout, byte);
  *reinterpret_cast<std::uint32_t*>(p.args.weights.dst + byte) =
      owner.is_scale ? scale_word(p, byte) : code_word(p, owner.element);
}

unsigned num_blocks(std::int64_t threads) {
  return static_cast<unsigned>(ceil_div(threads, kThreads));
}

}  // namespace

Status launch(const WeightLayout& layout,
              std::int64_t expert_idx,
              const PrepareFp8WeightsArgs& args,
              CUstream_st* stream) {
  const Params params = {layout, expert_idx, args};
  row_factor_kernel<<<num_blocks(32 * layout.rows()), kThreads, 0, stream>>>(params);
  HALFBYTE_RETURN_IF_ERROR(device::launch_status("row_factor"));
  prepare_kernel<<<num_blocks(layout.bytes_per_expert() / 4), kThreads, 0, stream>>>(params);
  return device::launch_status("prepare_fp8_weights");
}

}  // namespace halfbyte::sm90
