// SPDX-License-Identifier: Apache-2.0
#include "engine/step_recorder.h"

#include <algorithm>
#include <utility>

namespace halfbyte {
namespace {

Histogram with_bounds(std::vector<double> bounds) {
  Histogram histogram;
  histogram.counts.resize(bounds.size() + 1);
  histogram.bounds = std::move(bounds);
  return histogram;
}

Histogram of_seconds() {
  return with_bounds({0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
                      30.0, 60.0, 300.0});
}

// What the host adds to a step.
Histogram of_host_seconds() {
  return with_bounds(
      {0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0});
}

Histogram of_tokens() {
  return with_bounds({1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072});
}

void add(Histogram& histogram, double number) {
  const auto bucket = std::ranges::lower_bound(histogram.bounds, number);
  ++histogram.counts[static_cast<std::size_t>(bucket - histogram.bounds.begin())];
  histogram.sum += number;
}

}  // namespace

StepRecorder::StepRecorder()
    : histograms_{.queue_seconds = of_seconds(),
                  .step_tokens = of_tokens(),
                  .prefill_step_seconds = of_seconds(),
                  .decode_step_seconds = of_seconds(),
                  .mixed_step_seconds = of_seconds(),
                  .step_host_seconds = of_host_seconds()} {}

void StepRecorder::add_queue_time(double seconds) {
  add(histograms_.queue_seconds, seconds);
}

void StepRecorder::add_step(const StepShape& shape, double seconds, double forward_seconds) {
  add(histograms_.step_tokens, static_cast<double>(shape.prefill_tokens + shape.decode_tokens));
  add(histograms_.step_host_seconds, seconds - forward_seconds);
  if (shape.decode_tokens == 0) return add(histograms_.prefill_step_seconds, seconds);
  if (shape.prefill_tokens == 0) return add(histograms_.decode_step_seconds, seconds);
  add(histograms_.mixed_step_seconds, seconds);
}

}  // namespace halfbyte
