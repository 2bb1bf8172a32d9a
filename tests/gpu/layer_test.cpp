// SPDX-License-Identifier: Apache-2.0
//
// MoeLayer on a GPU: every element within the bound that nvfp4-moe 8.3 gives it, for every number
// of tokens of 12.8 and for inputs that are easily got wrong.
#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "layer_on_device.h"

namespace halfbyte::test {
namespace {

using test::LayerShape;
using test::random_layer;
using test::TestLayer;
using ::testing::HasSubstr;

constexpr ActivationSpec kClamped = {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 0.75F};
constexpr ActivationSpec kRelu2 = {ActivationFunction::kRelu2};
constexpr ActivationSpec kGeglu = {ActivationFunction::kGegluTanh};

TestLayer layer_with(LayerShape shape, DType y_dtype, unsigned seed) {
  TestLayer layer = random_layer(shape, seed);
  layer.spec.y_dtype = y_dtype;
  return layer;
}

// Rows of the last tokens, and every so many of the others.
void expect_step(const TestLayer& layer,
                 const LayerInput& input,
                 const std::vector<float>& got,
                 DType row_dtype) {
  expect_tokens(layer, input, got, row_dtype,
                std::max<std::int64_t>(1, input.tokens.num_tokens / 67));
}

TEST(LayerOnDevice, MeetsTheBoundForEveryNumberOfTokens) {
  HALFBYTE_NEED_HOPPER();
  for (const DType y_dtype : {DType::kBf16, DType::kF32}) {
    const unsigned seed = fresh_seed();
    const TestLayer layer =
        layer_with({.hidden_size = 144, .intermediate_size = 96, .num_experts = 12, .top_k = 3},
                   y_dtype, seed);
    DeviceLayer on_device(layer, 8064);
    DeviceStep step(on_device, 8064);
    for (const std::int64_t tokens : {0, 1, 2, 8, 16, 17, 64, 96, 192, 1024, 5120, 6144, 8064}) {
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, seed " << seed);
      const LayerInput input =
          random_input(layer.spec, tokens, seed + static_cast<unsigned>(tokens));
      expect_step(layer, input, step.run(input), on_device.row_dtype());
    }
  }
}

TEST(LayerOnDevice, MeetsTheBoundForEveryActivationTypeAndTail) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationSpec& activation : {ActivationSpec(), kClamped, kRelu2, kGeglu}) {
    for (const DType y_dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
      const unsigned seed = fresh_seed();
      const TestLayer layer = layer_with({.hidden_size = 528,
                                          .intermediate_size = 240,
                                          .num_experts = 5,
                                          .top_k = 2,
                                          .activation = activation},
                                         y_dtype, seed);
      DeviceLayer on_device(layer, 300);
      DeviceStep step(on_device, 300);
      for (const std::int64_t tokens : {7, 300}) {
        SCOPED_TRACE(::testing::Message()
                     << tokens << " tokens, activation " << static_cast<int>(activation.function)
                     << ", y " << dtype_name(y_dtype) << ", seed " << seed);
        LayerInput input = random_input(layer.spec, tokens, seed);
        std::mt19937 random(seed);
        input.shared = test::gaussian(tokens * 528, 0.1, random);
        expect_step(layer, input, step.run(input), on_device.row_dtype());
      }
    }
  }
}

std::vector<double> run_reference(const TestLayer& layer,
                                  ActivationMode mode,
                                  const LayerInput& input) {
  MoeOptions options;
  options.runner_backend = "reference";
  options.activation_mode = mode;
  options.capacity_tokens = input.tokens.num_tokens;
  const auto reference =
      std::move(MoeLayer::create(layer.spec, options, input_scales_of(layer))).value();
  for (std::size_t e = 0; e < layer.experts.size(); ++e)
    expect_ok(reference->load_expert(static_cast<std::int64_t>(e), layer.experts[e].expert()));
  expect_ok(reference->finish_loading());
  const std::int64_t tokens = input.tokens.num_tokens;
  const std::int64_t hidden = layer.spec.hidden_size;
  std::vector<float> y(static_cast<std::size_t>(tokens * hidden));
  expect_ok(reference->run({input.tokens.x.data(), DType::kBf16, tokens, hidden},
                           {input.tokens.topk_idx, input.weights}, {},
                           {y.data(), DType::kF32, tokens, hidden}));
  return {y.begin(), y.end()};
}

// nvfp4-moe 8.3, the alarms against the plain definition for fp32 rows: bf16 h; quantised x and h.
TEST(LayerOnDevice, AgreesWithTheReferenceBackend) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer =
      layer_with({.hidden_size = 1024, .intermediate_size = 768, .num_experts = 8, .top_k = 2},
                 DType::kF32, 7);
  for (const ActivationMode mode : kModes) {
    DeviceLayer on_device(layer, 32, nullptr, mode);
    DeviceStep step(on_device, 32);
    const LayerInput input = random_input(layer.spec, 32, 8);
    const std::vector<double> want = run_reference(layer, mode, input);
    EXPECT_LE(reference::rel_l2(step.run(input), want),
              mode == ActivationMode::kW4a16 ? 0x1p-9 : 3e-3)
        << activation_mode_name(mode);
  }
}

TEST(LayerOnDevice, IdsThatNameNoExpertAndTheirWeightsAreNotUsed) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.num_experts = 6, .top_k = 3}, DType::kBf16, fresh_seed());
  DeviceLayer on_device(layer, 400);
  DeviceStep step(on_device, 400);
  for (const std::int64_t tokens : {5, 400}) {
    LayerInput input = random_input(layer.spec, tokens, fresh_seed());
    const std::int32_t bad[] = {-1, 6, -2147483647, 1 << 30, 2147483647};
    for (std::size_t i = 0; i < input.weights.size(); i += 2) {
      input.tokens.topk_idx[i] = bad[i / 2 % 5];
      input.weights[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> got = step.run(input);
    expect_tokens(layer, input, got, DType::kBf16, tokens > 5 ? 7 : 1);
    std::fill(input.tokens.topk_idx.begin(), input.tokens.topk_idx.end(), -1);
    const std::vector<float> none = step.run(input);
    EXPECT_EQ(none, std::vector<float>(none.size(), 0.0F));
  }
}

TEST(LayerOnDevice, AllTokensMayGoToOneExpertAndIdsMayRepeat) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 160, .num_experts = 9}, DType::kF32, 3);
  DeviceLayer on_device(layer, 700);
  DeviceStep step(on_device, 700);
  for (const std::int64_t tokens : {1, 33, 129, 700}) {
    LayerInput input = random_input(layer.spec, tokens, fresh_seed());
    std::fill(input.tokens.topk_idx.begin(), input.tokens.topk_idx.end(), 8);
    SCOPED_TRACE(tokens);
    expect_step(layer, input, step.run(input), DType::kF32);
  }
}

// Global scales of gate, up and down far apart, and different in every expert.
TEST(LayerOnDevice, UnequalScalesStayApart) {
  HALFBYTE_NEED_HOPPER();
  TestLayer layer = layer_with({.hidden_size = 192, .num_experts = 6}, DType::kF32, fresh_seed());
  for (std::size_t e = 0; e < 6; ++e) {
    const int n = static_cast<int>(e);
    layer.experts[e].gate.view.global_scale *= std::ldexp(1.0F, n - 3);
    layer.experts[e].up.view.global_scale *= std::ldexp(1.0F, 4 - 2 * n);
    layer.experts[e].down.view.global_scale *= std::ldexp(1.0F, e == 1 ? -20 : n);
  }
  DeviceLayer on_device(layer, 200);
  DeviceStep step(on_device, 200);
  for (const std::int64_t tokens : {6, 200}) {
    const LayerInput input = random_input(layer.spec, tokens, fresh_seed());
    expect_step(layer, input, step.run(input), DType::kF32);
  }
}

// 9.2: results do not depend on what any buffer held, and repeats are equal.
TEST(LayerOnDevice, WhatTheWorkspaceHeldDoesNotShow) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer =
      layer_with({.hidden_size = 272, .num_experts = 7, .top_k = 3}, DType::kBf16, fresh_seed());
  for (const ActivationMode mode : kModes) {
    DeviceLayer on_device(layer, 2000, nullptr, mode);
    DeviceStep step(on_device, 2000);
    for (const std::int64_t tokens : {3, 40, 2000}) {
      const LayerInput input = random_input(layer.spec, tokens, fresh_seed());
      const std::vector<float> first = step.run(input);
      for (const int poison : {0x00, 0x7F, 0xFF}) {
        on_device.poison_workspace(poison);
        EXPECT_EQ(step.run(input), first)
            << activation_mode_name(mode) << ", " << tokens << " tokens, filled with " << poison;
      }
    }
  }
}

// 12.3: rows past the count are zeros, whatever they hold, and the others have the bits that they
// have with any other padding.
TEST(LayerOnDevice, RowsPastTheValidCountAreZerosAndChangeNothing) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 96}, DType::kF32, fresh_seed());
  for (const ActivationMode mode : kModes) {
    DeviceLayer on_device(layer, 600, nullptr, mode);
    DeviceStep step(on_device, 600);
    for (const std::int64_t tokens : {8, 600}) {
      SCOPED_TRACE(::testing::Message() << activation_mode_name(mode) << ", " << tokens);
      LayerInput input = random_input(layer.spec, tokens, fresh_seed());
      std::mt19937 random(1);
      input.shared = test::gaussian(tokens * 96, 1, random);
      input.num_valid = tokens * 5 / 8;
      const std::vector<float> first = step.run(input);
      if (mode == ActivationMode::kW4a16) expect_step(layer, input, first, DType::kF32);
      const auto valid_bytes = static_cast<std::size_t>(input.num_valid) * 96 * 2;
      std::fill(input.tokens.x.begin() + static_cast<std::ptrdiff_t>(valid_bytes),
                input.tokens.x.end(), std::uint8_t{0xFF});  // NaN
      std::fill(input.shared.begin() + static_cast<std::ptrdiff_t>(valid_bytes / 2),
                input.shared.end(), std::numeric_limits<float>::quiet_NaN());
      EXPECT_EQ(step.run(input), first);
      input.num_valid = 0;
      EXPECT_EQ(step.run(input), std::vector<float>(first.size(), 0.0F));
    }
  }
}

TEST(LayerOnDevice, YMayBeX) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 128}, DType::kBf16, fresh_seed());
  for (const ActivationMode mode : kModes) {
    DeviceLayer on_device(layer, 500, nullptr, mode);
    DeviceStep step(on_device, 500);
    for (const std::int64_t tokens : {4, 500}) {
      const LayerInput input = random_input(layer.spec, tokens, fresh_seed());
      const std::vector<float> apart = step.run(input);
      step.set(input);
      expect_ok(step.enqueue(true));
      EXPECT_EQ(step.rows(true), apart) << activation_mode_name(mode);
    }
  }
}

// 12.10: a layer's steps may lie between another's.
TEST(LayerOnDevice, TwoLayersShareAWorkspace) {
  HALFBYTE_NEED_HOPPER();
  const auto workspace = make_moe_workspace();
  const TestLayer narrow = layer_with({.hidden_size = 64, .num_experts = 3}, DType::kF32, 1);
  const TestLayer wide = layer_with({.hidden_size = 512, .num_experts = 20}, DType::kF32, 2);
  DeviceLayer first(narrow, 100, workspace);
  DeviceLayer second(wide, 300, workspace);
  DeviceStep small(first, 100);
  DeviceStep large(second, 300);
  const LayerInput narrow_input = random_input(narrow.spec, 100, fresh_seed());
  const LayerInput wide_input = random_input(wide.spec, 300, fresh_seed());
  const std::vector<float> alone = small.run(narrow_input);
  expect_step(wide, wide_input, large.run(wide_input), DType::kF32);
  EXPECT_EQ(small.run(narrow_input), alone);
  expect_step(narrow, narrow_input, alone, DType::kF32);
}

// 12.9: in place; the same file twice gives the same bits; a refused expert leaves the old one.
TEST(LayerOnDevice, ReloadingReplacesInPlace) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer a = layer_with({.hidden_size = 208}, DType::kF32, 10);
  TestLayer b = layer_with({.hidden_size = 208}, DType::kF32, 20);
  DeviceLayer on_device(a, 64);
  DeviceStep step(on_device, 64);
  const LayerInput input = random_input(a.spec, 64, fresh_seed());
  const std::vector<float> of_a = step.run(input);
  on_device.load(a);
  EXPECT_EQ(step.run(input), of_a);
  on_device.load(b);
  DeviceLayer fresh(b, 64);
  DeviceStep fresh_step(fresh, 64);
  EXPECT_EQ(step.run(input), fresh_step.run(input));
  test::TestExpert broken = a.experts[0];
  broken.up.block_scale[3] = 0x7F;
  EXPECT_EQ(on_device->load_expert(0, broken.expert()).code(), StatusCode::kCorruptData);
  EXPECT_EQ(step.run(input), fresh_step.run(input));
}

// One staging buffer serves all threads.
TEST(LayerOnDevice, ExpertsMayBeLoadedFromSeveralThreads) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer a = layer_with({.hidden_size = 208, .num_experts = 16}, DType::kBf16, 11);
  const TestLayer b = layer_with({.hidden_size = 208, .num_experts = 16}, DType::kBf16, 12);
  DeviceLayer one_by_one(b, 40);
  DeviceLayer on_device(a, 40);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&on_device, &b, t] {
      for (std::size_t e = t; e < 16; e += 4)
        expect_ok(on_device->load_expert(static_cast<std::int64_t>(e), b.experts[e].expert()));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  expect_ok(on_device->finish_loading());
  const LayerInput input = random_input(b.spec, 40, fresh_seed());
  DeviceStep step(on_device, 40);
  DeviceStep want(one_by_one, 40);
  EXPECT_EQ(step.run(input), want.run(input));
}

TEST(LayerOnDevice, ArraysGiveWhatExpertsGive) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 144, .num_experts = 3}, DType::kBf16, 13);
  std::vector<std::uint8_t> gate_up, gate_up_scale, down, down_scale;
  ExpertArrays arrays;
  arrays.num_experts = 3;
  arrays.gate_up_global_scale.shape = {3, 2};
  arrays.down_global_scale.shape = {3};
  const auto append = [](std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const test::TestExpert& expert : layer.experts) {
    for (const test::TestMatrix* half : {&expert.gate, &expert.up}) {
      append(gate_up, half->codes);
      append(gate_up_scale, half->block_scale);
      arrays.gate_up_global_scale.values.push_back(half->view.global_scale);
    }
    append(down, expert.down.codes);
    append(down_scale, expert.down.block_scale);
    arrays.down_global_scale.values.push_back(expert.down.view.global_scale);
  }
  arrays.gate_up_codes = gate_up;
  arrays.gate_up_block_scale = gate_up_scale;
  arrays.down_codes = down;
  arrays.down_block_scale = down_scale;
  DeviceLayer on_device(layer, 9);
  DeviceStep step(on_device, 9);
  const LayerInput input = random_input(layer.spec, 9, fresh_seed());
  const std::vector<float> want = step.run(input);
  expect_ok(on_device->load_arrays(arrays));
  EXPECT_EQ(step.run(input), want);
}

TEST(LayerOnDevice, CallsOutOfOrderAreRefused) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 64}, DType::kBf16, 14);
  DeviceLayer on_device(layer, 4);
  EXPECT_EQ(on_device->finish({}, {}).code(), StatusCode::kInvalidArgument);
  std::vector<std::int32_t> counts(4, 0);
  EXPECT_EQ(on_device->run_bucketed({}, counts, {}).code(), StatusCode::kUnsupported);
  MoeOptions host;
  host.capacity_tokens = 4;
  host.workspace = make_moe_workspace();
  const auto on_host = MoeLayer::create(layer.spec, host);
  ASSERT_TRUE(on_host.ok());
  EXPECT_EQ((*on_host)->set_stream(nullptr).code(), StatusCode::kInvalidArgument);
  host.device = kGpu;  // a workspace of the host
  EXPECT_THAT(MoeLayer::create(layer.spec, host).status().to_string(),
              HasSubstr("a workspace on the host cannot serve a layer on CUDA device 0"));
}

TEST(LayerOnDevice, ABatchThatDoesNotFitIsRefusedBeforeAnythingRuns) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 64}, DType::kF32, 1);
  DeviceLayer on_device(layer, 16);
  DeviceStep step(on_device, 17);
  step.set(random_input(layer.spec, 17, 1));
  const Status status = step.enqueue();
  EXPECT_EQ(status.code(), StatusCode::kCapacityExceeded) << status.to_string();
  for (const float value : step.rows())
    EXPECT_TRUE(std::isnan(value));  // as it was
}

TEST(LayerOnDevice, MemoryOfTheHostIsRefused) {
  HALFBYTE_NEED_HOPPER();
  const TestLayer layer = layer_with({.hidden_size = 64}, DType::kBf16, 1);
  DeviceLayer on_device(layer, 4);
  std::vector<std::uint16_t> x(64);
  const std::vector<std::int32_t> idx = {0, 1};
  const std::vector<float> weights = {1, 1};
  const Status status = on_device->run({x.data(), DType::kBf16, 1, 64}, {idx, weights}, {},
                                       {x.data(), DType::kBf16, 1, 64});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("is on the host, this layer lives on CUDA device 0"));
}

}  // namespace
}  // namespace halfbyte::test
