// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BENCHMARKS_LOAD_ANONYMOUS_MEMORY_H_
#define HALFBYTE_BENCHMARKS_LOAD_ANONYMOUS_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace halfbyte::benchmarks {

/// Bytes of anonymous memory that this process has resident (RssAnon of /proc/self/status); mapped
/// files are not part of it.
std::int64_t anonymous_bytes();

/// Watches anonymous_bytes() from a thread of its own, every millisecond, until stop().
class AnonymousPeak {
 public:
  AnonymousPeak();
  ~AnonymousPeak() { stop(); }
  AnonymousPeak(const AnonymousPeak&) = delete;
  AnonymousPeak& operator=(const AnonymousPeak&) = delete;
  /// The largest value seen.
  std::int64_t stop();

 private:
  std::atomic<bool> stopping_ = false;
  std::int64_t peak_ = 0;  // of the thread until it is joined
  std::thread thread_;
};

}  // namespace halfbyte::benchmarks

#endif  // HALFBYTE_BENCHMARKS_LOAD_ANONYMOUS_MEMORY_H_
