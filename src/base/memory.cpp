// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

namespace halfbyte {
namespace {

std::string read_text(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

}  // namespace

std::int64_t parse_mem_available(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const std::size_t at = meminfo.find(kKey);
  if (at == std::string_view::npos) return 0;
  return parse_number(meminfo.substr(at + kKey.size())).value_or(0) * 1024;
}

std::int64_t available_memory_bytes() {
  const std::int64_t available = parse_mem_available(read_text("/proc/meminfo"));
  // "max", which is no number, and an absent file both mean that the group has no limit.
  const auto limit = parse_number(read_text("/sys/fs/cgroup/memory.max"));
  const auto used = parse_number(read_text("/sys/fs/cgroup/memory.current"));
  if (!limit || !used) return available;
  return std::min(available, std::max<std::int64_t>(*limit - *used, 0));
}

}  // namespace halfbyte
