// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/prepare_weights.cuh"

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"

namespace halfbyte::sm90 {
namespace {

struct Params {
  WeightLayout layout;
  std::int64_t expert_idx;
  PrepareWeightsArgs args;
};

/// The codes of four columns of one row, two a byte.
__device__ __forceinline__ unsigned four_codes(const Params& p, const Element& element) {
  if (scale_of(p.layout, p.args, element) == 0) return 0;
  const std::uint8_t* row = p.args.codes[element.half] + element.row * (p.layout.shape.cols / 2);
  return row[element.col / 2] | static_cast<unsigned>(row[element.col / 2 + 1]) << 8;
}

/// The word whose code 0 is `first`: four columns of `first`'s row and of the row eight below.
__device__ __forceinline__ std::uint32_t make_word(const Params& p, const Element& first) {
  std::uint32_t word = 0;
#pragma unroll
  for (int hi = 0; hi < 2; ++hi) {
    const unsigned codes = four_codes(p, code_element(p.layout, first, hi * 4));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word |= place_code(hi * 4 + i, codes >> (4 * i) & 15U);
  }
  return word;
}

/// A thread writes four bytes: a word of codes, or four scales.
__global__ void prepare_kernel(const Params p) {
  const std::int64_t begin = p.expert_idx * p.layout.bytes_per_expert();
  const std::int64_t num_words = p.layout.bytes_per_expert() / 4;
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < num_words;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::int64_t byte = begin + i * 4;
    const ByteOwner owner = owner_of(p.layout, byte);
    std::uint32_t word = 0;
    if (owner.is_scale) {
      for (int b = 0; b < 4; ++b) {
        const std::uint8_t scale = scale_of(p.layout, p.args, owner_of(p.layout, byte + b).element);
        word |= static_cast<std::uint32_t>(encode_scale(scale)) << (8 * b);
      }
    } else {
      word = make_word(p, owner.element);
    }
    *reinterpret_cast<std::uint32_t*>(p.args.dst + byte) = word;
  }
}

}  // namespace

Status launch(const WeightLayout& layout,
              std::int64_t expert_idx,
              const PrepareWeightsArgs& args,
              CUstream_st* stream) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t blocks = ceil_div(layout.bytes_per_expert() / 4, kThreads);
  const Params params = {layout, expert_idx, args};
  prepare_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(params);
  return device::launch_status("prepare_weights");
}

}  // namespace halfbyte::sm90
