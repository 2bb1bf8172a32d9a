// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_PROPERTIES_H_
#define HALFBYTE_DEVICE_PROPERTIES_H_

#include <cstdint>
#include <string>

#include "halfbyte/result.h"

namespace halfbyte::device {

struct Properties {
  std::string name;
  int compute_capability = 0;  // 90 for 9.0
  int num_multiprocessors = 0;
  std::int64_t shared_memory_bytes = 0;  // of one block, opted in
  std::int64_t l2_bytes = 0;
  std::int64_t total_bytes = 0;
};

/// Number of CUDA devices; 0 when there is no driver, and in a build without CUDA.
int num_devices();
/// kUnsupported: CUDA is not built, no device or driver is here, or none has this number.
Result<Properties> read_properties(int device_idx);

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_PROPERTIES_H_
