// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_REFERENCE_SCRATCH_H_
#define HALFBYTE_KERNELS_REFERENCE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfbyte::reference {

/// Grows to at least `count` elements and returns them. With a thread_local `buffer`, functions
/// without a workspace parameter allocate on a thread's first calls only.
template <typename T>
T* scratch_at_least(std::vector<T>& buffer, std::int64_t count) {
  if (buffer.size() < static_cast<std::size_t>(count))
    buffer.resize(static_cast<std::size_t>(count));
  return buffer.data();
}

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_SCRATCH_H_
