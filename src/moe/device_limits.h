// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_DEVICE_LIMITS_H_
#define HALFBYTE_MOE_DEVICE_LIMITS_H_

#include <string>

#include "moe/expert_backend.h"

namespace halfbyte {

/// What a plan for this device of this machine may count on; num_threads 0: the cores this process
/// may use. kUnsupported: CUDA is not built, or there is no such device.
Result<DeviceLimits> read_device_limits(const Device& device, int num_threads);

/// "the host" or "CUDA device 0".
std::string device_name(const Device& device);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DEVICE_LIMITS_H_
