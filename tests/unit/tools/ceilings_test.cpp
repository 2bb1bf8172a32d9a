// SPDX-License-Identifier: Apache-2.0
#include "bench/ceilings.h"

#include <gtest/gtest.h>

#include <array>

#include "bench/ceiling_loops.h"

namespace halfbyte::tool {
namespace {

TEST(Ceilings, AreAboveZeroOnceMeasured) {
  const auto probe = CeilingProbe::create(1 << 20, 1);
  ASSERT_TRUE(probe.ok());
  EXPECT_EQ((*probe)->ceilings().read_gbps, 0.0);
  (*probe)->measure();
  (*probe)->measure();
  EXPECT_GT((*probe)->ceilings().read_gbps, 0.0);
  EXPECT_GT((*probe)->ceilings().multiply_gops, 0.0);
}

// A loop that skipped memory would report too much: each word is in the result, which is the xor of
// all.
TEST(Ceilings, EveryReadLoopReadsEveryWord) {
  alignas(64) std::array<std::int64_t, 512> data = {};
  std::int64_t all = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<std::int64_t>(i * 0x9E3779B97F4A7C15U);
    all ^= data[i];
  }
  EXPECT_EQ(read_portable(data.data(), sizeof(data)), all);
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no avx2";
  EXPECT_EQ(read_avx2(data.data(), sizeof(data)), all);
  EXPECT_EQ(read_avx2_4_streams(data.data(), sizeof(data)), all);
  EXPECT_EQ(read_avx2_prefetch(data.data(), sizeof(data)), all);
}

}  // namespace
}  // namespace halfbyte::tool
