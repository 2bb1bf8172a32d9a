// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_LOG_H_
#define HALFBYTE_BASE_LOG_H_

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace halfbyte {

/// Where notices go: one line each, at most once per key. The library never prints; a tool gives
/// the sink. Thread-safe.
class NoticeSink {
 public:
  NoticeSink() = default;  // drops everything
  explicit NoticeSink(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}

  void notice(std::string_view key, std::string_view line);

 private:
  std::mutex mutex_;
  std::set<std::string, std::less<>> seen_;
  std::function<void(std::string_view)> sink_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_LOG_H_
