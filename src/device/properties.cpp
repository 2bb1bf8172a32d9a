// SPDX-License-Identifier: Apache-2.0
#include "device/properties.h"

#include <cuda_runtime_api.h>

#include "device/cuda_status.h"

namespace halfbyte::device {

int num_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<Properties> read_properties(int device_idx) {
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
