// SPDX-License-Identifier: Apache-2.0
//
// Steps of a layer inside CUDA graphs: nvfp4-moe 12.2.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "device/graph.h"
#include "layer_on_device.h"

namespace halfbyte::test {
namespace {

using device::Graph;
using test::random_layer;
using test::TestLayer;
using ::testing::HasSubstr;

TestLayer small_layer(unsigned seed) {
  TestLayer layer =
      random_layer({.hidden_size = 320, .intermediate_size = 160, .num_experts = 8}, seed);
  layer.spec.y_dtype = DType::kBf16;
  return layer;
}

Graph capture(DeviceLayer& layer, DeviceStep& step) {
  auto graph = Graph::capture(layer.stream, [&step] { return step.enqueue(); });
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.status().to_string());
  return std::move(graph).value();
}

std::vector<float> replay(DeviceLayer& layer,
                          DeviceStep& step,
                          const Graph& graph,
                          const LayerInput& input) {
  step.set(input);
  expect_ok(graph.launch(layer.stream));
  return step.rows();
}

// Everything that may change under a captured step, one at a time.
void expect_replays_to_follow(ActivationMode mode, std::int64_t tokens) {
  const TestLayer a = small_layer(1);
  const TestLayer b = small_layer(2);
  DeviceLayer captured(a, tokens, nullptr, mode);
  DeviceLayer plain(a, tokens, nullptr, mode);
  DeviceStep step(captured, tokens);
  DeviceStep plain_step(plain, tokens);
  step.always_valid = true;
  LayerInput input = random_input(a.spec, tokens, fresh_seed());
  step.run(input);
  const Graph graph = capture(captured, step);
  std::vector<float> last;
  const auto expect_changed = [&](const char* what) {
    const std::vector<float> got = replay(captured, step, graph, input);
    EXPECT_NE(got, last) << what;
    EXPECT_EQ(got, plain_step.run(input)) << what;
    last = got;
  };
  expect_changed("first");
  input.tokens.x = random_input(a.spec, tokens, fresh_seed()).tokens.x;
  expect_changed("x");
  input.tokens.topk_idx = random_input(a.spec, tokens, fresh_seed()).tokens.topk_idx;
  expect_changed("ids");
  for (float& weight : input.weights)
    weight *= 0.5F;
  expect_changed("weights");
  input.num_valid = tokens * 5 / 8;
  expect_changed("valid count");
  captured.load(b);
  plain.load(b);
  expect_changed("experts");
  if (mode != ActivationMode::kW4a4) return;
  for (DeviceLayer* layer : {&captured, &plain}) {
    expect_ok((*layer)->set_input_scales({{{}, {3 * b.s1}}, {{}, {1.7F * b.s2}}}));
    layer->load(b);
  }
  expect_changed("input scales");
}

// For a decode step and for a prefill step.
TEST(LayerGraph, AReplayReadsWhatItsAddressesHoldThen) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationMode mode : kModes) {
    for (const std::int64_t tokens : {8, 256}) {
      SCOPED_TRACE(::testing::Message() << activation_mode_name(mode) << ", " << tokens);
      expect_replays_to_follow(mode, tokens);
    }
  }
}

TEST(LayerGraph, OneWorkspaceServesGraphsOfSeveralSizesInAnyOrder) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = small_layer(3);
  DeviceLayer on_device(layer, 512);
  DeviceStep step(on_device, 512);
  std::vector<LayerInput> inputs;
  std::vector<std::vector<float>> want;
  std::vector<Graph> graphs;
  for (const std::int64_t tokens : {1, 2, 4, 8, 512}) {
    inputs.push_back(random_input(layer.spec, tokens, fresh_seed()));
    want.push_back(step.run(inputs.back()));
    graphs.push_back(capture(on_device, step));
  }
  for (const std::size_t i : {3U, 0U, 4U, 1U, 2U, 4U, 0U, 3U})
    EXPECT_EQ(replay(on_device, step, graphs[i], inputs[i]), want[i]) << i;
}

TEST(LayerGraph, AThousandReplaysGiveTheSameBits) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = small_layer(4);
  DeviceLayer on_device(layer, 32);
  DeviceStep step(on_device, 32);
  const LayerInput input = random_input(layer.spec, 32, fresh_seed());
  const std::vector<float> want = step.run(input);
  const Graph graph = capture(on_device, step);
  for (int i = 0; i < 1000; ++i)
    expect_ok(graph.launch(on_device.stream));
  EXPECT_EQ(step.rows(), want);
}

// The first step ever, and loading, are refused inside a capture, which then goes on.
TEST(LayerGraph, WhatAGraphCannotHoldIsRefusedAndTheCaptureGoesOn) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = small_layer(5);
  DeviceLayer on_device(layer, 8);
  DeviceStep step(on_device, 8);
  const LayerInput input = random_input(layer.spec, 8, fresh_seed());
  step.set(input);
  auto empty = Graph::capture(on_device.stream, [&] {
    const Status first = step.enqueue();
    EXPECT_EQ(first.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(first.to_string(), HasSubstr("first step while the stream is being captured"));
    return Status();
  });
  EXPECT_TRUE(empty.ok()) << (empty.ok() ? "" : empty.status().to_string());
  const std::vector<float> want = step.run(input);
  auto graph = Graph::capture(on_device.stream, [&] {
    const Status load = on_device->load_expert(0, layer.experts[0].expert());
    EXPECT_EQ(load.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(load.to_string(), HasSubstr("load_expert() while the stream is being captured"));
    EXPECT_EQ(on_device->finish_loading().code(), StatusCode::kInvalidArgument);
    return step.enqueue();
  });
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(replay(on_device, step, graph.value(), input), want);
}

}  // namespace
}  // namespace halfbyte::test
