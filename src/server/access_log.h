// SPDX-License-Identifier: Apache-2.0
//
// A line for each request: who asked for what, and what came of it. Never what was said.
#ifndef HALFBYTE_SERVER_ACCESS_LOG_H_
#define HALFBYTE_SERVER_ACCESS_LOG_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace halfbyte::server {

/// A request whose answer has ended.
struct AccessRecord {
  std::chrono::system_clock::time_point time = {};  // when it had been read
  std::string client;                               // address
  std::string method;
  std::string path;
  int status = 0;  // of the response; 499: the client left before its end
  double seconds = 0.0;
  std::uint64_t request_bytes = 0;  // of the bodies
  std::uint64_t response_bytes = 0;
  // Of an answer of the model; the id is the one that the client got.
  std::string id = {};
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::string error = {};  // that ended it
};

/// The record as one line of JSON.
std::string to_line(const AccessRecord& record);

/// Writes lines on a thread of its own: a reader that does not keep up, or a full disk, costs lines
/// and never holds up a request. Lines that were lost are told once lines are written again.
/// Thread-safe.
class AccessLog {
 public:
  /// Writes a line, which ends with a newline; false: it could not.
  using Write = std::function<bool(std::string_view line)>;
  static constexpr std::size_t kMaxWaiting = 4096;

  explicit AccessLog(Write write);
  /// Writes what waits.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void add(const AccessRecord& record);

 private:
  void run();
  void write(const std::deque<std::string>& lines);

  const Write write_;
  std::int64_t num_lost_ = 0;  // the thread's: not written yet

  std::mutex mutex_;  // of the following
  std::condition_variable added_;
  std::deque<std::string> waiting_;
  std::int64_t num_dropped_ = 0;  // for want of room
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_ACCESS_LOG_H_
