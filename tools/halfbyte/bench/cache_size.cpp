// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_size.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace halfbyte::tool {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kUnknownCacheBytes = 32 * kMebibyte;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32768K", "32M".
std::int64_t parse_size(const std::string& text) {
  char* unit = nullptr;
  const std::int64_t number = std::strtoll(text.c_str(), &unit, 10);
  if (*unit == 'K') return number * 1024;
  return *unit == 'M' ? number * kMebibyte : number;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace

std::int64_t level3_cache_bytes(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> sharers;  // of the caches counted so far
  std::int64_t bytes = 0;
  for (const int cpu : cpus) {
    const std::string cache = fmt::format("{}/cpu{}/cache/index3/", root, cpu);
    if (!sharers.insert(first_line(cache + "shared_cpu_list")).second) continue;
    bytes += parse_size(first_line(cache + "size"));
  }
  return bytes > 0 ? bytes : kUnknownCacheBytes;
}

std::int64_t level3_cache_bytes() {
  return level3_cache_bytes("/sys/devices/system/cpu", allowed_cpus());
}

}  // namespace halfbyte::tool
