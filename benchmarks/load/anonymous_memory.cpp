// SPDX-License-Identifier: Apache-2.0
#include "anonymous_memory.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace halfbyte::benchmarks {

std::int64_t anonymous_bytes() {
  constexpr std::string_view kField = "RssAnon:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kField)) {
      return std::strtoll(line.c_str() + kField.size(), nullptr, 10) * 1024;
    }
  }
  return 0;
}

AnonymousPeak::AnonymousPeak() {
  thread_ = std::thread([this] {
    while (!stopping_) {
      peak_ = std::max(peak_, anonymous_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

std::int64_t AnonymousPeak::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  peak_ = std::max(peak_, anonymous_bytes());
  return peak_;
}

}  // namespace halfbyte::benchmarks
