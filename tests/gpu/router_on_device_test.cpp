// SPDX-License-Identifier: Apache-2.0
//
// MoeLayer::route of logits on the device: the bits of the host's.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "layer_on_device.h"

namespace halfbyte::test {
namespace {

using device::Graph;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kGap = 5;  // columns behind each row of logits

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> weight_bits;
  bool operator==(const Routed&) const = default;
};

Routed make_routed(std::vector<std::int32_t> ids, const std::vector<float>& weights) {
  Routed routed = {std::move(ids), {}};
  for (const float weight : weights)
    routed.weight_bits.push_back(std::bit_cast<std::uint32_t>(weight));
  return routed;
}

/// Rows of every kind, one after another: of few values with many equal ones, without a finite
/// value, all equal, very large and small, with NaN and infinities, and plain random ones.
float random_logit(std::int64_t row, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float value = normal(random);
  const float odd[] = {kNan, kInfinity, -kInfinity, 0.0F, -0.0F, 88.0F, -104.0F, value};
  switch (row % 6) {
    case 0:
      return std::round(value);
    case 1:
      return row % 12 == 1 ? -kInfinity : kNan;
    case 2:
      return -7.0F;
    case 3:
      return value * 60.0F;
    case 4:
      return odd[random() % std::size(odd)];
    default:
      return value;
  }
}

std::vector<float> random_logits(std::int64_t rows, std::int64_t stride, std::mt19937& random) {
  std::vector<float> logits;
  for (std::int64_t i = 0; i < rows * stride; ++i)
    logits.push_back(random_logit(i / stride, random));
  return logits;
}

std::unique_ptr<MoeLayer> make_layer(const MoeSpec& spec, const device::Stream& stream) {
  MoeOptions options;
  options.device = kGpu;
  options.capacity_tokens = 8;
  options.autotune = false;
  auto created = MoeLayer::create(spec, options);
  EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.status().to_string());
  expect_ok(created.value()->set_stream(stream.handle()));
  return std::move(created).value();
}

Routed route_on_host(MoeLayer& layer,
                     const ConstMatrixView& logits,
                     const std::vector<float>& bias,
                     std::size_t slots) {
  std::vector<std::int32_t> ids(slots);
  std::vector<float> weights(slots);
  expect_ok(layer.route(logits, bias, ids, weights));
  return make_routed(ids, weights);
}

Routed route_on_gpu(MoeLayer& layer,
                    const ConstMatrixView& logits,
                    const std::vector<float>& bias,
                    std::size_t slots,
                    const device::Stream& stream) {
  const std::vector<float> values(
      static_cast<const float*>(logits.data),
      static_cast<const float*>(logits.data) + logits.rows * logits.row_stride);
  const DeviceArray<float> on_device(values, stream);
  const DeviceArray<float> biases(bias, stream);
  const DeviceArray<std::int32_t> ids(slots, stream);
  const DeviceArray<float> weights(slots, stream);
  ids.poison(0xFF);
  weights.poison(0xFF);
  ConstMatrixView view = logits;
  view.data = on_device.data();
  view.device = kGpu;
  expect_ok(layer.route(view, {biases.data(), biases.size()}, {ids.data(), slots},
                        {weights.data(), slots}));
  return make_routed(ids.download(), weights.download());
}

void expect_the_hosts_bits(const MoeSpec& spec, std::int64_t rows, bool biased) {
  const device::Stream stream = device::Stream::create().value();
  const auto layer = make_layer(spec, stream);
  std::mt19937 random(fresh_seed());
  std::normal_distribution<float> normal;
  std::vector<float> bias;
  for (std::int64_t e = 0; biased && e < spec.num_experts; ++e)
    bias.push_back(e % 17 == 3 ? -kInfinity : normal(random));
  const std::int64_t stride = spec.num_experts + kGap;
  const std::vector<float> logits = random_logits(rows, stride, random);
  ConstMatrixView view(logits.data(), DType::kF32, rows, spec.num_experts);
  view.row_stride = stride;
  const auto slots = static_cast<std::size_t>(rows * spec.top_k);
  EXPECT_EQ(route_on_gpu(*layer, view, bias, slots, stream),
            route_on_host(*layer, view, bias, slots))
      << "method " << static_cast<int>(spec.router.method) << ", " << spec.top_k << " of "
      << spec.num_experts << ", " << spec.router.topk_group << " of " << spec.router.num_groups
      << " groups" << (biased ? ", with a bias" : "");
}

MoeSpec make_spec(RoutingMethod method, std::int64_t num_experts, std::int64_t top_k) {
  MoeSpec spec;
  spec.hidden_size = 64;
  spec.intermediate_size = 64;
  spec.num_experts = num_experts;
  spec.top_k = top_k;
  spec.router.method = method;
  spec.router.renormalize = top_k % 2 == 0;
  spec.router.routed_scaling_factor = num_experts == 256 ? 2.5F : 1.0F;
  return spec;
}

TEST(RouterOnDevice, GivesTheHostsBitsByEveryMethod) {
  HALFBYTE_NEED_HOPPER();
  for (const RoutingMethod method : {RoutingMethod::kSoftmax, RoutingMethod::kSoftmaxRenorm,
                                     RoutingMethod::kSigmoidBias, RoutingMethod::kSqrtSoftplus}) {
    for (const auto& [num_experts, top_k] :
         {std::pair{1, 1}, {7, 7}, {60, 4}, {128, 8}, {256, 8}, {512, 33}, {512, 64}}) {
      for (const bool biased : {false, true})
        expect_the_hosts_bits(make_spec(method, num_experts, top_k), 61, biased);
    }
  }
  expect_the_hosts_bits(make_spec(RoutingMethod::kLlama4, 16, 1), 61, false);
}

TEST(RouterOnDevice, GivesTheHostsBitsByGroups) {
  HALFBYTE_NEED_HOPPER();
  struct Groups {
    int num_experts, top_k, num_groups, topk_group;
  };
  for (const Groups& g :
       {Groups{256, 8, 8, 4}, {64, 6, 1, 1}, {60, 5, 12, 3}, {256, 6, 128, 40}, {128, 64, 4, 2}}) {
    for (const RoutingMethod method : {RoutingMethod::kGroupedMax, RoutingMethod::kGroupedTop2}) {
      MoeSpec spec = make_spec(method, g.num_experts, g.top_k);
      spec.router.num_groups = g.num_groups;
      spec.router.topk_group = g.topk_group;
      for (const bool flag : {false, true}) {
        spec.router.grouped_max_uses_sigmoid = flag;
        expect_the_hosts_bits(spec, 61, flag);
      }
    }
  }
}

TEST(RouterOnDevice, TakesNoRowsAndMany) {
  HALFBYTE_NEED_HOPPER();
  for (const std::int64_t rows : {0, 1, 3, 4, 5, 5000})
    expect_the_hosts_bits(make_spec(RoutingMethod::kSigmoidBias, 128, 8), rows, true);
}

TEST(RouterOnDevice, RefusesAnotherDevice) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  const auto layer = make_layer(make_spec(RoutingMethod::kSoftmax, 8, 2), stream);
  const DeviceArray<float> data(8, stream);
  const DeviceArray<std::int32_t> ids(2, stream);
  const ConstMatrixView logits(data.data(), DType::kF32, 1, 8, {DeviceKind::kCuda, 1});
  const Status status = layer->route(logits, {}, {ids.data(), 2}, {data.data(), 2});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(), HasSubstr("want host memory or the layer's device"));
}

// Router and step in one graph, whose replays follow the logits.
TEST(RouterOnDevice, IsPartOfAGraph) {
  HALFBYTE_NEED_HOPPER();
  constexpr std::int64_t kTokens = 9;
  TestLayer layer = random_layer({.hidden_size = 64, .intermediate_size = 64, .num_experts = 8}, 3);
  DeviceLayer on_device(layer, kTokens);
  DeviceStep step(on_device, kTokens);
  const LayerInput input = random_input(layer.spec, kTokens, 4);
  step.run(input);
  std::mt19937 random(fresh_seed());
  const auto slots = static_cast<std::size_t>(kTokens * layer.spec.top_k);
  const DeviceArray<float> logits(static_cast<std::size_t>(kTokens * layer.spec.num_experts),
                                  on_device.stream);
  const DeviceArray<float> weights(slots, on_device.stream);
  const DeviceArray<std::int32_t> ids(slots, on_device.stream);
  auto graph = Graph::capture(on_device.stream, [&]() -> Status {
    return on_device->route({logits.data(), DType::kF32, kTokens, layer.spec.num_experts, kGpu}, {},
                            {ids.data(), slots}, {weights.data(), slots});
  });
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  for (int i = 0; i < 2; ++i) {
    const std::vector<float> values = random_logits(kTokens, layer.spec.num_experts, random);
    logits.upload(values);
    expect_ok(graph->launch(on_device.stream));
    EXPECT_EQ(
        make_routed(ids.download(), weights.download()),
        route_on_host(*on_device, {values.data(), DType::kF32, kTokens, layer.spec.num_experts}, {},
                      slots));
  }
}

}  // namespace
}  // namespace halfbyte::test
