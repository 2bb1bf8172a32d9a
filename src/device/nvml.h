// SPDX-License-Identifier: Apache-2.0
//
// What the driver's management library says, where it is: it is loaded on first use, and nothing
// needs it to be there.
#ifndef HALFBYTE_DEVICE_NVML_H_
#define HALFBYTE_DEVICE_NVML_H_

#include <string>

namespace halfbyte::device {

/// "580.95.05"; without the library what CUDA says of its driver, "CUDA 13.0". Empty: no driver.
std::string driver_version();

/// 0: nobody says.
struct PowerState {
  double sm_mhz = 0;
  double watts = 0;
};
/// Of a CUDA device, now.
PowerState read_power_state(int device_idx);

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_NVML_H_
