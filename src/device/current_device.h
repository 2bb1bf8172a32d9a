// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_CURRENT_DEVICE_H_
#define HALFBYTE_DEVICE_CURRENT_DEVICE_H_

#include "halfbyte/status.h"

namespace halfbyte::device {

/// Makes a device the calling thread's current one, and the one before it again at the end: memory
/// is allocated, and kernels run, on the current device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device_idx);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  /// Ok, or why the device could not be made current.
  Status status() const { return status_.clone(); }

 private:
  [[maybe_unused]] int before_ = -1;  // -1: nothing to restore
  Status status_;
};

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_CURRENT_DEVICE_H_
