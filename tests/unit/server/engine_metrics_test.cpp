// SPDX-License-Identifier: Apache-2.0
#include "server/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/metrics.h"

namespace halfbyte::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

EngineHistograms some_histograms() {
  const halfbyte::Histogram none{{0.5, 2}, {0, 0, 0}, 0};
  return {.queue_seconds = {{0.5, 2}, {3, 2, 1}, 9.5},
          .step_tokens = {{1, 16}, {4, 0, 2}, 104},
          .prefill_step_seconds = none,
          .decode_step_seconds = {{0.5, 2}, {7, 0, 0}, 0.25},
          .mixed_step_seconds = none,
          .step_host_seconds = {{0.5, 2}, {8, 1, 0}, 0.75}};
}

// Prometheus' buckets count all that is at most their bound.
TEST(EngineMetrics, AreCumulative) {
  const std::string text = Metrics("m").render({}, "ready", {}, some_histograms());
  for (const char* line : {"halfbyte:queue_time_seconds_bucket{model_name=\"m\",le=\"0.5\"} 3\n",
                           "halfbyte:queue_time_seconds_bucket{model_name=\"m\",le=\"2\"} 5\n",
                           "halfbyte:queue_time_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 6\n",
                           "halfbyte:queue_time_seconds_count{model_name=\"m\"} 6\n",
                           "halfbyte:queue_time_seconds_sum{model_name=\"m\"} 9.5\n",
                           "halfbyte:iteration_tokens_total_sum{model_name=\"m\"} 104\n",
                           "halfbyte:step_seconds_count{phase=\"decode\",model_name=\"m\"} 7\n",
                           "halfbyte:step_seconds_count{phase=\"mixed\",model_name=\"m\"} 0\n",
                           "halfbyte:step_host_seconds_sum{model_name=\"m\"} 0.75\n",
                           "halfbyte:step_host_seconds_count{model_name=\"m\"} 9\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(EngineMetrics, AreNotThereBeforeTheEngineIs) {
  EXPECT_THAT(Metrics("m").render({}, "loading"), Not(HasSubstr("step_seconds")));
}

TEST(EngineMetrics, ShowWhatTheModelTakesAndWhoWasSentBack) {
  Metrics metrics("m");
  EngineInfo info;
  info.weight_load_seconds = 2.5;
  info.kv_cache_bytes = std::int64_t{3} << 29;
  info.weight_bytes = std::int64_t{5} << 28;
  metrics.set_model(info);
  EngineStats stats;
  stats.waiting = 5;
  stats.preempted = 2;
  stats.paused = 3;
  const std::string text = metrics.render(stats, "ready");
  EXPECT_THAT(text, HasSubstr("halfbyte:weight_load_duration_seconds{model_name=\"m\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:kv_cache_memory_usage_gb{model_name=\"m\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:weight_load_bytes{model_name=\"m\"} 1342177280\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:weight_memory_usage_gb{model_name=\"m\"} 1.25\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:num_retracted_reqs{model_name=\"m\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("halfbyte:num_paused_reqs{model_name=\"m\"} 3\n"));
}

}  // namespace
}  // namespace halfbyte::server
