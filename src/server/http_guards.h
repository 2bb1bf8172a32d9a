// SPDX-License-Identifier: Apache-2.0
//
// What ends with a scope of a connection, also when its coroutine is destroyed half way.
#ifndef HALFBYTE_SERVER_HTTP_GUARDS_H_
#define HALFBYTE_SERVER_HTTP_GUARDS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "server/http.h"

namespace halfbyte::server {

/// Counts a request until its answer is written.
class ActiveRequest {
 public:
  explicit ActiveRequest(std::atomic<std::int64_t>& count) : count_(count) { ++count_; }
  ~ActiveRequest() { --count_; }
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

 private:
  std::atomic<std::int64_t>& count_;
};

/// No wake-up may reach a connection that is gone.
class WakeGuard {
 public:
  WakeGuard(PendingAnswer& pending, std::function<void()> wake) : pending_(pending) {
    pending_.on_progress(std::move(wake));
  }
  ~WakeGuard() { pending_.on_progress(nullptr); }
  WakeGuard(const WakeGuard&) = delete;
  WakeGuard& operator=(const WakeGuard&) = delete;

 private:
  PendingAnswer& pending_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_HTTP_GUARDS_H_
