// SPDX-License-Identifier: Apache-2.0
#include "server/engine_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace halfbyte::server {
namespace {

constexpr int kPollMs = 100;  // how soon the thread sees that it shall stop

}  // namespace

void EventQueue::push(TokenEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  if (wake_) wake_();
}

std::vector<TokenEvent> EventQueue::take() {
  std::vector<TokenEvent> events;
  std::vector<std::function<void()>> resume;
  {
    const std::lock_guard lock(mutex_);
    events = std::exchange(events_, {});
    resume = std::exchange(resume_, {});
  }
  std::ranges::for_each(resume, [](const auto& call) { call(); });
  return events;
}

std::size_t EventQueue::size() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

void EventQueue::on_taken(std::size_t limit, std::function<void()> resume) {
  {
    const std::lock_guard lock(mutex_);
    if (events_.size() >= limit) return resume_.push_back(std::move(resume));
  }
  resume();
}

void EventQueue::on_push(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

EngineDriver::EngineDriver(std::unique_ptr<Engine> engine, DriverOptions options)
    : engine_(std::move(engine)), options_(std::move(options)) {
  thread_ = std::thread([this] { run(); });
}

EngineDriver::~EngineDriver() {
  stopping_ = true;
  thread_.join();
}

Result<RequestId> EngineDriver::submit(Request request, std::shared_ptr<EventQueue> events) {
  // Held until the queue is known: no event of the request can be delivered before.
  const std::lock_guard lock(mutex_);
  if (!ended_.empty()) return Status(StatusCode::kCancelled, ended_);
  // What was taken in with its first sequence is taken in whole.
  const bool has_begun =
      std::ranges::any_of(queues_, [&events](const auto& queue) { return queue.second == events; });
  const std::int64_t waiting = engine_->stats().waiting;
  if (!has_begun && waiting >= options_.max_queued_requests) {
    return Status(StatusCode::kCapacityExceeded,
                  fmt::format("{} requests wait already, want fewer than {}: try again later",
                              waiting, options_.max_queued_requests));
  }
  auto request_id = engine_->submit(std::move(request));
  if (request_id.ok()) queues_.emplace(*request_id, std::move(events));
  return request_id;
}

void EngineDriver::cancel(RequestId request_id) {
  const std::lock_guard lock(mutex_);
  if (queues_.erase(request_id) > 0) engine_->cancel(request_id);
}

std::int64_t EngineDriver::abort_request(std::string_view name) {
  return abort_if([name](const EventQueue& queue) { return queue.name() == name; });
}

std::int64_t EngineDriver::abort_all() {
  return abort_if([](const EventQueue&) { return true; });
}

std::int64_t EngineDriver::abort_if(const std::function<bool(const EventQueue&)>& is_meant) {
  const std::lock_guard lock(mutex_);
  std::int64_t num_aborted = 0;
  for (const auto& [request_id, queue] : queues_) {
    if (!is_meant(*queue)) continue;
    engine_->cancel(request_id);  // its last event says so
    ++num_aborted;
  }
  return num_aborted;
}

void EngineDriver::end_all(const std::string& why) {
  const std::lock_guard lock(mutex_);
  ended_ = why;
  end_queues(why);
}

// Call with mutex_ held.
void EngineDriver::end_queues(const std::string& why) {
  for (const auto& [request_id, queue] : queues_) {
    engine_->cancel(request_id);
    queue->push({.request_id = request_id, .finish_reason = FinishReason::kError, .error = why});
  }
  queues_.clear();
}

std::int64_t EngineDriver::num_active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(queues_.size());
}

Status EngineDriver::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_.clone();
}

bool EngineDriver::is_closed() const {
  const std::lock_guard lock(mutex_);
  return !ended_.empty() || !failure_.ok();
}

// ---------------------------------------------------------------- the polling thread

void EngineDriver::run() {
  while (!stopping_) {
    deliver(engine_->poll(kPollMs));
    if (options_.watchdog_timeout.count() > 0) watch();
  }
}

// A step that does not return: first a line of what is in it, then the end of what waits for it.
void EngineDriver::watch() {
  const EngineStats stats = engine_->stats();
  const auto now = std::chrono::steady_clock::now();
  if (stats.steps != num_steps_ || stats.running + stats.waiting == 0) {
    num_steps_ = stats.steps;
    last_step_ = now;
    has_warned_ = false;
    return;
  }
  if (is_stuck_ || now - last_step_ < options_.watchdog_timeout) return;
  const std::string what = fmt::format(
      "step {} of the engine has not returned for {:.1f} s: it has {} requests with {} tokens of "
      "prompts and {} of answers; {} requests run, {} wait, {} of {} cache blocks are free",
      stats.steps + 1, std::chrono::duration<double>(now - last_step_).count(),
      stats.step.num_requests, stats.step.prefill_tokens, stats.step.decode_tokens, stats.running,
      stats.waiting, stats.free_blocks, stats.total_blocks);
  if (!has_warned_ && options_.notice) options_.notice(what);
  has_warned_ = true;
  if (now - last_step_ < 2 * options_.watchdog_timeout) return;
  is_stuck_ = true;
  const std::lock_guard lock(mutex_);
  failure_ = {StatusCode::kDeviceError, what};
  ended_ = failure_.to_string();
  end_queues(ended_);
}

void EngineDriver::deliver(std::vector<TokenEvent> events) {
  const bool has_error = std::ranges::any_of(
      events, [](const auto& event) { return event.finish_reason == FinishReason::kError; });
  if (has_error) note_failure();
  const std::lock_guard lock(mutex_);
  for (TokenEvent& event : events) {
    deliver_one(std::move(event));
  }
}

// Call with mutex_ held. One sequence of several that share a queue is paused when it has something
// new, so none is before its first token. Each pause is followed by the end of it, on whatever
// thread takes the events; of a sequence that has ended neither has an effect.
void EngineDriver::deliver_one(TokenEvent event) {
  const auto found = queues_.find(event.request_id);
  if (found == queues_.end()) return;  // cancelled
  const RequestId request_id = event.request_id;
  const std::shared_ptr<EventQueue> queue = found->second;
  const bool is_last = event.finish_reason != FinishReason::kNone;
  if (is_last) queues_.erase(found);
  queue->push(std::move(event));
  if (is_last || queue->size() < options_.max_queued_events) return;
  engine_->set_paused(request_id, true);
  queue->on_taken(options_.max_queued_events,
                  [this, request_id] { engine_->set_paused(request_id, false); });
}

// An error may be one request's own, or the engine's end. Its cause is what it refuses requests
// with.
void EngineDriver::note_failure() {
  if (!engine_->stats().failed) return;
  auto refused = engine_->submit({.prompt_ids = {0}, .sampling = {}});
  const std::lock_guard lock(mutex_);
  if (!refused.ok()) failure_ = refused.take_status();
}

}  // namespace halfbyte::server
