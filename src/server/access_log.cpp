// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "server/json.h"

namespace halfbyte::server {
namespace {

// "2026-01-31T23:59:59.123Z"
std::string utc(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), ms);
}

}  // namespace

std::string to_line(const AccessRecord& record) {
  Json json = {{"time", utc(record.time)},
               {"client", record.client},
               {"method", record.method},
               {"path", record.path},
               {"status", record.status},
               {"seconds", record.seconds},
               {"request_bytes", record.request_bytes},
               {"response_bytes", record.response_bytes}};
  if (!record.id.empty()) {
    json["id"] = record.id;
    json["prompt_tokens"] = record.prompt_tokens;
    json["completion_tokens"] = record.completion_tokens;
  }
  if (!record.error.empty()) json["error"] = record.error;
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + '\n';
}

AccessLog::AccessLog(Write write) : write_(std::move(write)) {
  thread_ = std::thread([this] { run(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_one();
  thread_.join();
}

void AccessLog::add(const AccessRecord& record) {
  std::string line = to_line(record);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++num_dropped_;
      return;
    }
    waiting_.push_back(std::move(line));
  }
  added_.notify_one();
}

void AccessLog::run() {
  for (bool stopping = false; !stopping;) {
    std::deque<std::string> lines;
    {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      lines = std::exchange(waiting_, {});
      num_lost_ += std::exchange(num_dropped_, 0);
      stopping = stopping_;
    }
    write(lines);
  }
}

void AccessLog::write(const std::deque<std::string>& lines) {
  for (const std::string& line : lines) {
    if (num_lost_ > 0 && write_(fmt::format("{{\"lost_lines\":{}}}\n", num_lost_))) num_lost_ = 0;
    if (!write_(line)) ++num_lost_;
  }
}

}  // namespace halfbyte::server
