// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_NO_THROW_H_
#define HALFBYTE_BASE_NO_THROW_H_

#include <new>
#include <stdexcept>

#include "halfbyte/status.h"

namespace halfbyte {

/// Calls `function`, which returns a Status or a Result; a container that cannot grow becomes
/// kOutOfMemory. Stands where the library's boundary would otherwise throw.
template <typename Function>
auto no_throw(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "host memory: an allocation failed");
  } catch (const std::length_error&) {
    return Status(StatusCode::kOutOfMemory, "host memory: a size is beyond what can be allocated");
  }
}

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_NO_THROW_H_
