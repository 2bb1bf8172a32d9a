// SPDX-License-Identifier: Apache-2.0
//
// Between the HTTP threads and the engine: hands requests in, and events out to who asked.
#ifndef HALFBYTE_SERVER_ENGINE_DRIVER_H_
#define HALFBYTE_SERVER_ENGINE_DRIVER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte::server {

/// Events of one client's request on their way to its HTTP thread. They are tokens, not text, and
/// EngineDriver pauses sequences that are far ahead, so a client that reads slowly costs little.
/// Thread-safe.
class EventQueue {
 public:
  /// `name`: what EngineDriver::abort_request() knows the request by.
  explicit EventQueue(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  void push(TokenEvent event);
  /// All of them; then calls what on_taken() was given.
  std::vector<TokenEvent> take();
  std::size_t size() const;
  /// `resume` is called once, on the thread of the next take(), or now if that has been: fewer than
  /// `limit` events are here. It must not call back into this.
  void on_taken(std::size_t limit, std::function<void()> resume);
  /// `wake` is called after each push, and must not call back into this or the driver; null: no
  /// more calls, and none is under way.
  void on_push(std::function<void()> wake);

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::vector<TokenEvent> events_;
  std::function<void()> wake_;
  std::vector<std::function<void()>> resume_;
};

struct DriverOptions {
  std::int64_t max_queued_requests = 4096;  // sequences that wait in the engine at most
  std::chrono::milliseconds watchdog_timeout{
      0};  // of a step: then a notice, twice: failed; 0: none
  std::function<void(std::string_view)> notice = {};  // one line each; may be null
  // Of one client's request: a sequence that adds more is paused until they are taken.
  std::size_t max_queued_events = 4096;
};

/// Owns the engine and the thread that polls it. Thread-safe; no queue is taken from after its
/// destruction.
class EngineDriver {
 public:
  EngineDriver(std::unique_ptr<Engine> engine, DriverOptions options);
  ~EngineDriver();
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  /// @return kCapacityExceeded: the queue is full; kCancelled after end_all(); the engine's own.
  Result<RequestId> submit(Request request, std::shared_ptr<EventQueue> events);
  /// No further event reaches its queue; the engine frees its blocks within a step.
  void cancel(RequestId request_id);
  /// Ends the sequences of the request of that name, or all, with kCancelled events; their number.
  std::int64_t abort_request(std::string_view name);
  std::int64_t abort_all();
  void flush_cache() { engine_->flush_cache(); }
  /// Ends every request with a kError event that says `why`, and refuses later ones with it.
  void end_all(const std::string& why);

  std::int64_t num_active() const;
  const EngineInfo& info() const { return engine_->info(); }
  EngineStats stats() const { return engine_->stats(); }
  EngineHistograms histograms() const { return engine_->histograms(); }
  std::vector<ExpertLoad> expert_load() const { return engine_->expert_load(); }
  /// Why the engine has failed; ok while it has not.
  Status failure() const;
  /// True when nothing new is taken: failed, or end_all().
  bool is_closed() const;
  /// True when a step has not returned: the engine cannot be destroyed.
  bool is_stuck() const { return is_stuck_; }

 private:
  void run();
  void deliver(std::vector<TokenEvent> events);
  void deliver_one(TokenEvent event);
  void note_failure();
  void watch();
  void end_queues(const std::string& why);
  std::int64_t abort_if(const std::function<bool(const EventQueue&)>& is_meant);

  const std::unique_ptr<Engine> engine_;
  const DriverOptions options_;

  // the polling thread
  std::int64_t num_steps_ = 0;
  std::chrono::steady_clock::time_point last_step_ = std::chrono::steady_clock::now();
  bool has_warned_ = false;

  mutable std::mutex mutex_;  // of the following
  std::unordered_map<RequestId, std::shared_ptr<EventQueue>> queues_;
  std::string ended_;  // not empty: nothing new, because of this
  Status failure_;

  std::atomic<bool> stopping_ = false;
  std::atomic<bool> is_stuck_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_ENGINE_DRIVER_H_
