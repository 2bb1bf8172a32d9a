// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_status.h"
#include "kernels/cuda/common/read_stream.h"

namespace halfbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 8;  // loads of a thread
// For any device: each of its multiprocessors has several; beyond that more bring nothing.
constexpr int kBlocks = 132 * 8;

__device__ std::uint32_t mix(uint4 v) {
  return v.x ^ v.y ^ v.z ^ v.w;
}

__global__ void read_stream_kernel(const uint4* src, std::int64_t count, std::uint32_t* sink) {
  std::uint32_t sum = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  for (; i + (kInFlight - 1) * stride < count; i += kInFlight * stride) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      v[j] = __ldcg(src + i + j * stride);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      sum ^= mix(v[j]);
  }
  for (; i < count; i += stride)
    sum ^= mix(__ldcg(src + i));
  if (sum == 0x12345678U) *sink = sum;
}

}  // namespace

Status launch_read_stream(const void* src,
                          std::int64_t num_bytes,
                          std::uint32_t* sink,
                          CUstream_st* stream) {
  read_stream_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint4*>(src),
                                                       num_bytes / 16, sink);
  return device::launch_status("read_stream");
}

}  // namespace halfbyte::cuda
