// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_MEMORY_H_
#define HALFBYTE_BASE_MEMORY_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace halfbyte {

/// Bytes of host memory this process may still take: what the system has available, or what its
/// control group leaves, whichever is less. 0 when the system does not say.
std::int64_t available_memory_bytes();

/// The bytes of "MemAvailable:  123 kB" in the text of /proc/meminfo; 0 without that line.
std::int64_t parse_mem_available(std::string_view meminfo);

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_MEMORY_H_
