// SPDX-License-Identifier: Apache-2.0
#include "device/current_device.h"

#include <cuda_runtime_api.h>

#include "device/cuda_status.h"

namespace halfbyte::device {

CurrentDevice::CurrentDevice(int device_idx) {
  int now = -1;
  status_ = cuda_status(cudaGetDevice(&now), "ask for the current device");
  if (!status_.ok() || now == device_idx) return;
  status_ = cuda_status(cudaSetDevice(device_idx), "make a device current");
  if (status_.ok()) before_ = now;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace halfbyte::device
