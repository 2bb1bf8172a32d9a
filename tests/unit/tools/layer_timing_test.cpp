// SPDX-License-Identifier: Apache-2.0
#include "bench/layer_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halfbyte::tool {
namespace {

constexpr Ceilings kMachine = {.read_gbps = 20.0, .multiply_gops = 400.0};

// 40 MB at 20 GB/s are 2 ms, 80 MOP at 400 GOP/s 0.2 ms.
TEST(LayerSpeed, IsLimitedByMemoryWhenReadingTakesLonger) {
  const LayerSpeed speed = make_layer_speed(4.0, {40'000'000, 80'000'000}, kMachine);
  EXPECT_EQ(speed.limited_by, "memory");
  EXPECT_DOUBLE_EQ(speed.gbps, 10.0);
  EXPECT_DOUBLE_EQ(speed.gops, 20.0);
  EXPECT_DOUBLE_EQ(speed.limit, 20.0);
  EXPECT_DOUBLE_EQ(speed.percent_of_limit, 50.0);
}

// 4000 MOP at 400 GOP/s are 10 ms.
TEST(LayerSpeed, IsLimitedByComputeWhenMultiplyingTakesLonger) {
  const LayerSpeed speed = make_layer_speed(40.0, {40'000'000, 4'000'000'000}, kMachine);
  EXPECT_EQ(speed.limited_by, "compute");
  EXPECT_DOUBLE_EQ(speed.limit, 400.0);
  EXPECT_DOUBLE_EQ(speed.percent_of_limit, 25.0);
}

// One expert is 3 * 64 * 32 * 9 / 16 = 3456 bytes.
constexpr std::int64_t kExpertBytes = 3456;
const LayerShape kShape = {"small", 64, 32, 8, 8, 2};

TEST(LayerMemory, HoldsThreeTimesTheCacheInWholeLayers) {
  EXPECT_EQ(kShape.expert_bytes(), kExpertBytes);
  EXPECT_EQ(num_rotating_layers(kShape, 1), 1);
  EXPECT_EQ(num_rotating_layers(kShape, 8 * kExpertBytes), 3);
  EXPECT_EQ(num_rotating_layers(kShape, 8 * kExpertBytes + 1), 4);
}

// One layer of 8 experts, 3 bytes for the measurement of a cache of one, 100 for a step.
TEST(LayerMemory, IsRefusedWithBytesAndRemedyWhenItDoesNotFit) {
  constexpr std::int64_t kOther = 103;
  EXPECT_TRUE(check_layer_memory(kShape, 1, 100, 8 * kExpertBytes + kOther).ok());
  EXPECT_TRUE(check_layer_memory(kShape, 1, 100, 0).ok()) << "the system does not say";
  const Status status = check_layer_memory(kShape, 1, 100, 5 * kExpertBytes + kOther);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("small: 27751 bytes wanted"),
                             testing::HasSubstr("17383 bytes available"),
                             testing::HasSubstr("use --experts 5 or fewer")));
  const Status hopeless = check_layer_memory(kShape, 1, 100, kExpertBytes);
  EXPECT_THAT(std::string(hopeless.message()), testing::HasSubstr("fewer --tokens"))
      << "two experts are wanted at least";
}

// 2^28 rows of 65536 bf16 values are 32 TB.
TEST(LayerMemory, CountsTheRowsOfAStep) {
  LayerBenchOptions options;
  options.shape = {"wide", 65536, 32, 2, 2, 2};
  options.num_tokens = {1, std::int64_t{1} << 28};
  options.cache_bytes = 1;
  const auto bench = LayerBench::create(options);
  ASSERT_FALSE(bench.ok());
  EXPECT_EQ(bench.status().code(), StatusCode::kOutOfMemory) << bench.status().to_string();
  EXPECT_THAT(std::string(bench.status().message()), testing::HasSubstr("fewer --tokens"));
}

TEST(LayerBench, TimesALayerOfEachMode) {
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    LayerBenchOptions options;
    options.shape = kShape;
    options.num_tokens = {3};
    options.moe.activation_mode = mode;
    options.moe.num_threads = 1;
    options.cache_bytes = 1 << 16;
    options.slice_seconds = 0.0;
    const auto bench = LayerBench::create(options);
    ASSERT_TRUE(bench.ok()) << bench.status().to_string();
    const auto speed = (*bench)->time(3);
    ASSERT_TRUE(speed.ok()) << speed.status().to_string();
    EXPECT_GT(speed->ms, 0.0);
    EXPECT_GT(speed->percent_of_limit, 0.0);
    EXPECT_EQ((*bench)->num_threads(), 1);
  }
}

}  // namespace
}  // namespace halfbyte::tool
