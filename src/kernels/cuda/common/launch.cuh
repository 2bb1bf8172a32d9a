// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_LAUNCH_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::cuda {

struct Grid {
  dim3 blocks;
  int threads = 0;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks of a cluster, along x
};

/// Launches a kernel that calls wait_for_previous_kernel() before it reads or writes what the one
/// before does, so that its prologue overlaps the other's end.
template <typename Kernel, typename... Args>
Status launch_overlapped(
    const char* name, Kernel kernel, const Grid& grid, cudaStream_t stream, const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = grid.cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = grid.cluster > 1 ? 2 : 1;
  return device::cuda_status(cudaLaunchKernelEx(&config, kernel, args...), name);
}

/// Raises the limit of dynamic shared memory; cheap, and legal while a stream is captured. Without
/// it 48 KiB are the limit of a kernel's static memory and this together.
template <typename Kernel>
Status allow_shared_bytes(const char* name, Kernel kernel, std::size_t bytes) {
  if (bytes <= 32 * 1024) return {};
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      name);
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_LAUNCH_CUH_
