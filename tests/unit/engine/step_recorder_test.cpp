// SPDX-License-Identifier: Apache-2.0
#include "engine/step_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace halfbyte {
namespace {

// How many numbers are in the bucket that ends with `bound`.
std::int64_t count_at(const Histogram& histogram, double bound) {
  const auto found = std::ranges::find(histogram.bounds, bound);
  EXPECT_NE(found, histogram.bounds.end()) << bound;
  return histogram.counts.at(static_cast<std::size_t>(found - histogram.bounds.begin()));
}

std::int64_t total(const Histogram& histogram) {
  return std::reduce(histogram.counts.begin(), histogram.counts.end());
}

TEST(StepRecorder, BeginsWithNothingInEveryBucket) {
  const StepRecorder recorder;
  EXPECT_EQ(recorder.histograms().queue_seconds.counts.size(),
            recorder.histograms().queue_seconds.bounds.size() + 1);
  EXPECT_EQ(total(recorder.histograms().queue_seconds), 0);
  EXPECT_TRUE(std::ranges::is_sorted(recorder.histograms().step_tokens.bounds));
}

TEST(StepRecorder, CountsABoundInItsOwnBucketAndTheRestAboveAll) {
  StepRecorder recorder;
  for (const double seconds : {0.0, 0.001, 0.0011, 0.002, 1000.0})
    recorder.add_queue_time(seconds);
  const Histogram& queue = recorder.histograms().queue_seconds;
  EXPECT_EQ(count_at(queue, 0.001), 2);
  EXPECT_EQ(count_at(queue, 0.002), 2);
  EXPECT_EQ(queue.counts.back(), 1);
  EXPECT_DOUBLE_EQ(queue.sum, 1000.0041);
}

TEST(StepRecorder, TellsStepsByWhatTheyCompute) {
  StepRecorder recorder;
  recorder.add_step({.num_requests = 1, .prefill_tokens = 100}, 0.5, 0.49995);
  recorder.add_step({.num_requests = 3, .decode_tokens = 3}, 0.01, 0.00875);
  recorder.add_step({.num_requests = 4, .decode_tokens = 4}, 0.01, 0.00875);
  recorder.add_step({.num_requests = 5, .prefill_tokens = 12, .decode_tokens = 4}, 0.1, 0.0);
  const EngineHistograms& histograms = recorder.histograms();
  EXPECT_EQ(total(histograms.prefill_step_seconds), 1);
  EXPECT_EQ(total(histograms.decode_step_seconds), 2);
  EXPECT_DOUBLE_EQ(histograms.decode_step_seconds.sum, 0.02);
  EXPECT_EQ(count_at(histograms.mixed_step_seconds, 0.1), 1);
  EXPECT_EQ(count_at(histograms.step_tokens, 4), 2);
  EXPECT_EQ(count_at(histograms.step_tokens, 16), 1);
  EXPECT_EQ(count_at(histograms.step_tokens, 128), 1);
  EXPECT_DOUBLE_EQ(histograms.step_tokens.sum, 123);
  EXPECT_EQ(count_at(histograms.step_host_seconds, 0.002), 2) << "0.01 less 0.00875, twice";
  EXPECT_EQ(total(histograms.step_host_seconds), 4);
}

}  // namespace
}  // namespace halfbyte
