// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include "device/cuda_status.h"

namespace halfbyte::bench {
namespace {

__device__ std::uint32_t hash(std::uint64_t i, std::uint32_t seed) {
  auto x = static_cast<std::uint32_t>(i * 2654435761U + (i >> 32)) ^ seed * 0x9E3779B9U;
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

__global__ void fill_kernel(
    std::uint32_t* dst, std::int64_t words, std::uint32_t seed, int low, int high) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < words;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::uint32_t random = hash(static_cast<std::uint64_t>(i), seed);
    std::uint32_t word = random;
    for (int b = 0; low < high && b < 4; ++b) {
      const std::uint32_t byte = low + (random >> (8 * b) & 0xFFU) % (high - low);
      word = b == 0 ? byte : word | byte << (8 * b);
    }
    dst[i] = word;
  }
}

}  // namespace

Status fill_random(void* dst,
                   std::int64_t bytes,
                   std::uint32_t seed,
                   int low,
                   int high,
                   const device::Stream& stream) {
  fill_kernel<<<2048, 256, 0, stream.handle()>>>(static_cast<std::uint32_t*>(dst), bytes / 4, seed,
                                                 low, high);
  return device::launch_status("fill");
}

}  // namespace halfbyte::bench
