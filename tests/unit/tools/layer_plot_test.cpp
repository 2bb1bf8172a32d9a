// SPDX-License-Identifier: Apache-2.0
#include "bench/layer_plot.h"

#include <gmock/gmock.h>

#include <string>

#include "bench/device_layer_timing.h"

namespace halfbyte::tool {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kRows =
    R"({"shape":"qwen","tokens":1,"mode":"w4a16","backend":"cuda_sm90","ms":0.02,"percent_of_limit":25})"
    "\n"
    R"({"shape":"qwen","tokens":64,"mode":"w4a16","backend":"cuda_sm90","ms":0.1,"percent_of_limit":80})"
    "\n\n"
    R"({"shape":"qwen","tokens":64,"mode":"w4a4","backend":"cuda_sm90","ms":0.11,"percent_of_limit":75})"
    "\n";

TEST(LayerPlot, DrawsACurveForEachModeOverAllTokens) {
  const std::string svg = plot_layers("H200 <1>", kRows).value();
  EXPECT_THAT(svg, HasSubstr("H200 &lt;1>"));
  EXPECT_THAT(svg, HasSubstr("qwen, w4a16 on cuda_sm90"));
  EXPECT_THAT(svg, HasSubstr("qwen, w4a4 on cuda_sm90"));
  EXPECT_THAT(svg, HasSubstr("<title>20</title>"));  // microseconds
  EXPECT_THAT(svg, HasSubstr("<title>80</title>"));  // percent
  EXPECT_THAT(svg, HasSubstr(">1000</text>"));       // the logarithmic axis ends above 110
  EXPECT_THAT(svg, Not(HasSubstr("nan")));           // w4a4 has no point at one token
}

TEST(LayerPlot, NamesTheLineThatIsNoRow) {
  const auto bad = plot_layers("", std::string(kRows) + "{\"shape\":1}\n");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("line 5"));
  EXPECT_FALSE(plot_layers("", "[]").ok());
  EXPECT_FALSE(plot_layers("", "\n").ok());
}

// Steps of 21 MB against an L2 of 60 MB: 9 touch three of them.
TEST(DeviceLayerBench, AGraphTouchesThreeTimesTheCache) {
  EXPECT_EQ(num_graph_steps(21'000'000, 60'000'000), 18);
  EXPECT_EQ(num_graph_steps(6'000'000'000, 60'000'000), 4);
  EXPECT_EQ(num_graph_steps(1000, 60'000'000), 64);
}

// In a build without CUDA, or on a machine without a device.
TEST(DeviceLayerBench, SaysWhatInspectBackendsSaysWhereThereIsNoDevice) {
  LayerBenchOptions options;
  options.shape = {"small", 64, 32, 8, 8, 2};
  options.num_tokens = {1};
  options.moe.runner_backend = "cuda_sm90";
  options.moe.device = {DeviceKind::kCuda, 99};
  const auto bench = DeviceLayerBench::create(options);
  ASSERT_FALSE(bench.ok());
  EXPECT_EQ(bench.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(bench.status().message()), HasSubstr("cuda_sm90: no"));
}

}  // namespace
}  // namespace halfbyte::tool
