// SPDX-License-Identifier: Apache-2.0
//
// The experts of cuda_sm100 on such a GPU against the reference, with the alarm of nvfp4-moe 8.3
// for the w4a4 modes: what their emulation on the host (unit tests) cannot show.
#include <cmath>
#include <cstring>
#include <span>

#include "device_data.h"
#include "kernels/reference/oracle.h"
#include "moe/device_limits.h"
#include "support/moe_case.h"

namespace halfbyte {
namespace {

using test::DeviceArray;

constexpr double kMaxRelL2 = 3e-3;  // codes of h may flip by one step where a sum is not exact

/// Rows of every route, from the device.
class OnDevice {
 public:
  OnDevice(const test::TestLayer& layer, ActivationMode mode, std::int64_t capacity_tokens) {
    ExpertPlan request;
    request.spec = layer.spec;
    request.mode = mode;
    request.shard = {.num_local_experts = layer.spec.num_experts,
                     .intermediate_size = layer.spec.intermediate_size};
    request.limits = read_device_limits({DeviceKind::kCuda, 0}, 1).value();
    request.capacity_tokens = capacity_tokens;
    plan_ = backend_->plan(request).value();
    prepared_ = backend_->allocate(plan_).value();
    workspace_ = DeviceArray<std::byte>(plan_.workspace.total_bytes(), stream_);
    workspace_.poison(0x7F);
    for (std::size_t e = 0; e < layer.experts.size(); ++e) {
      EXPECT_TRUE(backend_
                      ->prepare(plan_, static_cast<std::int64_t>(e), layer.experts[e].expert(),
                                *prepared_, &stream_)
                      .ok());
    }
    EXPECT_TRUE(backend_->set_scales(plan_, layer.scales(mode), *prepared_, &stream_).ok());
    EXPECT_TRUE(backend_->warm_up(plan_, *prepared_, workspace(), &stream_).ok());
  }

  std::vector<float> run(const test::TestTokens& tokens, const test::TestRoutes& routes) {
    const DeviceArray<std::uint8_t> x(tokens.x, stream_);
    const DeviceArray<std::int32_t> row(routes.route_row, stream_),
        count(routes.expert_count, stream_);
    const DeviceArray<std::int64_t> offset(routes.expert_offset, stream_);
    const DeviceArray<float> rows(
        static_cast<std::size_t>(plan_.max_routes * plan_.spec.hidden_size), stream_);
    DispatchedTokens step = routes.dispatched(plan_.spec, tokens);
    step.x.data = x.data();
    step.route_row = row.data();
    step.expert_offset = offset.data();
    step.expert_count = count.data();
    const ExpertOutput output = {
        {rows.data(), DType::kF32, plan_.max_routes, plan_.spec.hidden_size}};
    const Status status = backend_->run(plan_, *prepared_, step, output, workspace(), &stream_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<float> got = rows.download();
    got.resize(routes.route_row.size() * static_cast<std::size_t>(plan_.spec.hidden_size));
    return got;
  }

 private:
  Workspace workspace() const { return {workspace_.data(), workspace_.size()}; }

  std::shared_ptr<ExpertBackend> backend_ = make_cuda_sm100_backend();
  device::Stream stream_ = device::Stream::create().value();
  ExpertPlan plan_;
  std::unique_ptr<PreparedExpertWeights> prepared_;
  DeviceArray<std::byte> workspace_;
};

std::vector<double> reference_row(const test::TestLayer& layer,
                                  ActivationMode mode,
                                  const test::TestTokens& tokens,
                                  const test::TestRoutes& routes,
                                  std::size_t route) {
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  const auto expert = static_cast<std::size_t>(routes.route_expert[route]);
  std::vector<float> row(hidden);
  reference::run_expert_row(
      layer.experts[expert].expert(), layer.spec.activation, mode, layer.scalars(expert),
      tokens.x_f32.data() + static_cast<std::size_t>(routes.route_row[route]) * hidden, row.data());
  return {row.begin(), row.end()};
}

// Narrow and wide tiles, padded columns, experts with several blocks of scales and with none.
TEST(Sm100Experts, RowsAreThoseOfTheReference) {
  if (device::num_devices() == 0 || device::read_properties(0).value().compute_capability != 100)
    GTEST_SKIP() << "needs a GPU of compute capability 10.0";
  const test::TestLayer layer = test::random_layer(
      {.hidden_size = 144, .intermediate_size = 96, .num_experts = 6, .top_k = 3}, 1);
  const auto hidden = static_cast<std::size_t>(layer.spec.hidden_size);
  for (const ActivationMode mode : {ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    OnDevice on_device(layer, mode, 1000);
    for (const std::int64_t num_tokens : {1, 17, 300, 1000}) {
      SCOPED_TRACE(testing::Message() << activation_mode_name(mode) << ", " << num_tokens);
      const test::TestTokens tokens = test::random_tokens(layer.spec, num_tokens, 2);
      const test::TestRoutes routes(layer.spec, tokens);
      const std::vector<float> got = on_device.run(tokens, routes);
      for (std::size_t route = 0; route < routes.route_row.size(); ++route) {
        EXPECT_LE(reference::rel_l2(std::span(got).subspan(route * hidden, hidden),
                                    reference_row(layer, mode, tokens, routes, route)),
                  kMaxRelL2)
            << "route " << route;
      }
      const std::vector<float> again = on_device.run(tokens, routes);
      EXPECT_EQ(std::memcmp(got.data(), again.data(), got.size() * sizeof(float)), 0);
    }
  }
}

}  // namespace
}  // namespace halfbyte
