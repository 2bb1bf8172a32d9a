// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_METRICS_H_
#define HALFBYTE_SERVER_METRICS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "halfbyte/engine.h"

namespace halfbyte::server {

/// What /metrics shows. Thread-safe.
class Metrics {
 public:
  /// `expert_tokens`: also the tokens of each expert.
  explicit Metrics(const std::string& model_name, bool expert_tokens = false);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void count_finished(const std::string& reason,
                      std::int64_t prompt_tokens,
                      std::int64_t generated_tokens,
                      double seconds);
  void count_rejected(int status);
  void observe_first_token(double seconds);
  void observe_inter_token(double seconds);
  void set_startup_seconds(double seconds);
  /// What stays as it is once the model is loaded.
  void set_model(const EngineInfo& info);

  /// The Prometheus text; `stats` as they are now, `state` the server's. Throughput is that since
  /// the last text, if it is a second old.
  std::string render(const EngineStats& stats,
                     const std::string& state,
                     std::span<const ExpertLoad> load = {},
                     const EngineHistograms& histograms = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_METRICS_H_
