// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_status.h"

#include <fmt/format.h>

namespace halfbyte::device {

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  const auto code =
      error == cudaErrorMemoryAllocation ? StatusCode::kOutOfMemory : StatusCode::kDeviceError;
  return Status(code, fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

Status launch_status(std::string_view kernel) {
  return cuda_status(cudaGetLastError(), kernel);
}

}  // namespace halfbyte::device
