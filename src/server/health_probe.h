// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_HEALTH_PROBE_H_
#define HALFBYTE_SERVER_HEALTH_PROBE_H_

#include <memory>
#include <utility>
#include <variant>

#include "server/api_error.h"
#include "server/engine_driver.h"

namespace halfbyte::server {

/// One token through the engine, which proves that it steps: 200, or 503 with the reason. Thread
/// rule: PendingAnswer's.
class HealthProbe : public PendingAnswer {
 public:
  /// `limit`: what the token may take.
  static std::variant<std::shared_ptr<PendingAnswer>, ApiError> start(
      std::shared_ptr<EngineDriver> driver, std::chrono::milliseconds limit);
  HealthProbe(std::shared_ptr<EngineDriver> driver, std::chrono::milliseconds limit)
      : driver_(std::move(driver)), deadline_(std::chrono::steady_clock::now() + limit) {}

  void on_progress(std::function<void()> wake) override { events_->on_push(std::move(wake)); }
  bool streams() const override { return false; }
  Progress advance() override;
  std::chrono::steady_clock::time_point deadline() const override { return deadline_; }
  void cancel() override { driver_->cancel(request_id_); }

 private:
  const std::shared_ptr<EngineDriver> driver_;
  const std::chrono::steady_clock::time_point deadline_;
  const std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>("health");
  RequestId request_id_ = 0;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_HEALTH_PROBE_H_
