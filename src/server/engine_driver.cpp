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
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void EventQueue::on_push(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

EngineDriver::EngineDriver(std::unique_ptr<Engine> engine, std::int64_t max_queued_requests)
    : engine_(std::move(engine)), max_queued_requests_(max_queued_requests) {
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
  if (!has_begun && waiting >= max_queued_requests_) {
    return Status(StatusCode::kCapacityExceeded,
                  fmt::format("{} requests wait already, want fewer than {}: try again later",
                              waiting, max_queued_requests_));
  }
  auto request_id = engine_->submit(std::move(request));
  if (request_id.ok()) queues_.emplace(*request_id, std::move(events));
  return request_id;
}

void EngineDriver::cancel(RequestId request_id) {
  const std::lock_guard lock(mutex_);
  if (queues_.erase(request_id) > 0) engine_->cancel(request_id);
}

void EngineDriver::end_all(const std::string& why) {
  const std::lock_guard lock(mutex_);
  ended_ = why;
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
  }
}

void EngineDriver::deliver(std::vector<TokenEvent> events) {
  const bool has_error = std::ranges::any_of(
      events, [](const auto& event) { return event.finish_reason == FinishReason::kError; });
  if (has_error) note_failure();
  const std::lock_guard lock(mutex_);
  for (TokenEvent& event : events) {
    const auto found = queues_.find(event.request_id);
    if (found == queues_.end()) continue;  // cancelled
    const std::shared_ptr<EventQueue> queue = found->second;
    if (event.finish_reason != FinishReason::kNone) queues_.erase(found);
    queue->push(std::move(event));
  }
}

// An error may be one request's own, or the engine's end: then it refuses whatever comes, also to
// score one token.
void EngineDriver::note_failure() {
  auto probe = engine_->score({0});
  if (probe.ok() || probe.status().code() == StatusCode::kInvalidArgument) return;
  const std::lock_guard lock(mutex_);
  failure_ = probe.take_status();
}

}  // namespace halfbyte::server
