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
    : histograms_{of_seconds(), of_tokens(), of_seconds(), of_seconds(), of_seconds()} {}

void StepRecorder::add_queue_time(double seconds) {
  add(histograms_.queue_seconds, seconds);
}

void StepRecorder::add_step(std::int64_t prefill_tokens,
                            std::int64_t decode_tokens,
                            double seconds) {
  add(histograms_.step_tokens, static_cast<double>(prefill_tokens + decode_tokens));
  if (decode_tokens == 0) return add(histograms_.prefill_step_seconds, seconds);
  if (prefill_tokens == 0) return add(histograms_.decode_step_seconds, seconds);
  add(histograms_.mixed_step_seconds, seconds);
}

}  // namespace halfbyte
