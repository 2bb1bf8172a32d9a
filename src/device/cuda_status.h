// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_CUDA_STATUS_H_
#define HALFBYTE_DEVICE_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string_view>

#include "halfbyte/status.h"

namespace halfbyte::device {

/// Ok for cudaSuccess, kOutOfMemory for a failed allocation, else kDeviceError: "what: CUDA's
/// words".
Status cuda_status(cudaError_t error, std::string_view what);

/// The error of the launch that was just made; kernels' faults show at the next synchronisation.
Status launch_status(std::string_view kernel);

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_CUDA_STATUS_H_
