// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <gtest/gtest.h>

namespace halfbyte::tool {
namespace {

// Expected values: numpy.percentile([1, 2, 3, 4], [50, 90, 99]), numpy.std.
TEST(Summary, IsThatOfNumpy) {
  const Summary summary = summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(summary.mean, 2.5);
  EXPECT_DOUBLE_EQ(summary.median, 2.5);
  EXPECT_DOUBLE_EQ(summary.p90, 3.7);
  EXPECT_DOUBLE_EQ(summary.p99, 3.97);
  EXPECT_DOUBLE_EQ(summary.std, 1.118033988749895);
}

TEST(Summary, OfNothingIsZero) {
  EXPECT_EQ(summarize({}).p99, 0.0);
  EXPECT_EQ(median({}), 0.0);
}

TEST(Summary, OfOneValueIsThatValue) {
  EXPECT_EQ(summarize({7}).p90, 7.0);
  EXPECT_EQ(summarize({7}).std, 0.0);
}

// [0, 3] and [1, 2] and [5, 6] cover 3 + 1.
TEST(CoveredLength, CountsWhatOverlapsOnce) {
  EXPECT_DOUBLE_EQ(covered_length({{5, 6}, {1, 2}, {0, 3}}), 4.0);
  EXPECT_DOUBLE_EQ(covered_length({{0, 2}, {1, 3}}), 3.0);
  EXPECT_DOUBLE_EQ(covered_length({}), 0.0);
}

TEST(Rounded, KeepsFiveDigits) {
  EXPECT_EQ(rounded(1234567.0), 1234600.0);
  EXPECT_EQ(rounded(0.0432109876), 0.043211);
  EXPECT_EQ(rounded(0.0), 0.0);
}

}  // namespace
}  // namespace halfbyte::tool
