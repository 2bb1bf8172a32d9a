// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_CACHE_SIZE_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_CACHE_SIZE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace halfbyte::tool {

/// Bytes of all level 3 caches that `cpus` reach, each counted once, as described under `root`
/// (/sys/devices/system/cpu). 32 MiB when none is described.
std::int64_t level3_cache_bytes(const std::string& root, const std::vector<int>& cpus);

/// The same for the cores that this process may use.
std::int64_t level3_cache_bytes();

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_CACHE_SIZE_H_
