// SPDX-License-Identifier: Apache-2.0
#include "device/properties.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda_status.h"

namespace halfbyte::device {
namespace {

Status check_exists(int device_idx) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {StatusCode::kUnsupported,
            fmt::format("no CUDA device ({})",
                        cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice))};
  }
  if (device_idx >= 0 && device_idx < count) return {};
  return {StatusCode::kUnsupported, fmt::format("no CUDA device {}: there {} {}", device_idx,
                                                count == 1 ? "is" : "are", count)};
}

}  // namespace

int num_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<Properties> read_properties(int device_idx) {
  HALFBYTE_RETURN_IF_ERROR(check_exists(device_idx));
  cudaDeviceProp raw = {};
  HALFBYTE_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&raw, device_idx), "read device properties"));
  Properties properties;
  properties.name = raw.name;
  properties.compute_capability = raw.major * 10 + raw.minor;
  properties.num_multiprocessors = raw.multiProcessorCount;
  properties.shared_memory_bytes = static_cast<std::int64_t>(raw.sharedMemPerBlockOptin);
  properties.l2_bytes = raw.l2CacheSize;
  properties.total_bytes = static_cast<std::int64_t>(raw.totalGlobalMem);
  return properties;
}

}  // namespace halfbyte::device
