// SPDX-License-Identifier: Apache-2.0
//
// Sums to h on the NVFP4 grid with a scale a route, against plain loops over the reference's
// functions, bit for bit; zeros where the next product wants them, nothing anywhere else.
#include "kernels/cuda/sm90/activate_tiles.h"

#include <random>

#include "activations.h"
#include "device_data.h"
#include "grid_on_host.h"
#include "kernels/reference/activation.h"

namespace halfbyte::sm90 {
namespace {

using test::DeviceArray;

constexpr int kExperts = 5;
constexpr std::int64_t kTokens = 90;
constexpr std::uint16_t kPoison = 0xA5A5;

std::vector<float> normal(std::int64_t count, float spread, std::mt19937& random) {
  std::normal_distribution<float> distribution(0.0F, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = distribution(random);
  return values;
}

struct Case {
  ActivationSpec activation;
  std::int64_t intermediate_size = 0;
  int tile_tokens = 64;
};

class ActivateTiles {
 public:
  explicit ActivateTiles(const Case& c) : c_(c) {
    const cuda::GroupRowsShape group = {kTokens, 3, kExperts, 0, kExperts};
    routes_ = test::group_on_host(group, make_ids(group, test::Spread::kSkewed, random_), kTokens);
    num_routes_ = std::ssize(routes_.route_row);
    gate_up_ = {{{kExperts, c.activation.gated() ? 2 : 1, c.intermediate_size, 64}},
                GemmOutput::kRows,
                DType::kF32};
    tiles_ = {c.tile_tokens, (c.intermediate_size + 63) / 64 * 64};
    sums_ = normal(num_routes_ * gate_up_.output_cols(), 3.0F, random_);
    row_scale_ = normal(kTokens, 1.0F, random_);
    for (float& s : row_scale_)
      s = std::fabs(s);
    row_scale_[3] = 0.0F;                                                         // no content
    sums_[static_cast<std::size_t>(gate_up_.output_cols()) + 1] = std::nanf("");  // route 1
    for (std::vector<float>* scale : {&gate_, &up_, &down_})
      *scale = normal(kExperts, 1.0F, random_);
  }

  void expect_bits() {
    run();
    std::vector<std::uint16_t> want(got_.size(), kPoison);
    test::for_each_tile_row(tiles_, routes_, [&](std::int64_t tile, int token, std::int64_t route) {
      const std::vector<std::uint16_t> row = h_row(route);
      for (std::int64_t col = 0; col < tiles_.cols; ++col)
        want[static_cast<std::size_t>(tiles_.offset(tile, token, col) / 2)] =
            row[static_cast<std::size_t>(col)];
    });
    EXPECT_EQ(test::count_different(got_, want), 0);
  }

 private:
  void run() {
    const DeviceArray<float> sums(sums_, stream_), row_scale(row_scale_, stream_);
    const DeviceArray<float> gate(gate_, stream_), up(up_, stream_), down(down_, stream_);
    const DeviceArray<std::int64_t> offset(routes_.expert_offset, stream_);
    const DeviceArray<std::int32_t> count(routes_.expert_count, stream_),
        row(routes_.route_row, stream_);
    const std::int64_t bytes = tiles_.max_tiles(num_routes_, kExperts) * tiles_.tile_bytes();
    const DeviceArray<std::uint16_t> h(static_cast<std::size_t>(bytes / 2), stream_);
    const DeviceArray<float> alpha(static_cast<std::size_t>(num_routes_), stream_);
    h.poison(0xA5), alpha.poison(0xFF);
    const ActivateTilesArgs args = {sums.data(),
                                    row.data(),
                                    offset.data(),
                                    count.data(),
                                    c_.activation,
                                    row_scale.data(),
                                    c_.activation.gated() ? gate.data() : nullptr,
                                    up.data(),
                                    down.data(),
                                    h.data(),
                                    alpha.data()};
    const Status status =
        launch_activate_tiles(gate_up_, num_routes_, c_.tile_tokens, args, stream_.handle());
    ASSERT_TRUE(status.ok()) << status.to_string();
    got_ = h.download();
    row_alpha_ = alpha.download();
  }

  // h of a route before it is quantised.
  std::vector<float> exact_h(std::size_t route) const {
    const float s = row_scale_[static_cast<std::size_t>(routes_.route_row[route])];
    const auto expert = static_cast<std::size_t>(routes_.route_expert[route]);
    const float gate = cuda::row_alpha(gate_[expert], s);
    const float up = cuda::row_alpha(up_[expert], s);
    const int halves = gate_up_.weights.shape.num_halves;
    const float* sums = sums_.data() + route * static_cast<std::size_t>(gate_up_.output_cols());
    std::vector<float> h;
    for (std::int64_t col = 0; col < c_.intermediate_size; ++col) {
      const float g = halves == 2 ? sums[stored_row(halves, 0, col)] : 0.0F;
      const float u = sums[stored_row(halves, halves - 1, col)];
      h.push_back(reference::activate(c_.activation, g * gate, u * up));
    }
    return h;
  }

  std::vector<std::uint16_t> h_row(std::int64_t route) const {
    std::vector<std::uint16_t> row;
    if (route >= 0) {
      const std::vector<float> h = exact_h(static_cast<std::size_t>(route));
      const float s = dynamic_row_scale(h.data(), std::ssize(h));
      const auto expert =
          static_cast<std::size_t>(routes_.route_expert[static_cast<std::size_t>(route)]);
      EXPECT_EQ(row_alpha_[static_cast<std::size_t>(route)], cuda::row_alpha(down_[expert], s));
      row = test::grid_row(h, s).values;
    }
    row.resize(static_cast<std::size_t>(tiles_.cols), 0);
    return row;
  }

  Case c_;
  std::mt19937 random_{3};
  device::Stream stream_ = device::Stream::create().value();
  test::HostRoutes routes_;
  std::int64_t num_routes_ = 0;
  GroupedGemmShape gate_up_;
  TokenTiles tiles_;
  std::vector<float> sums_, row_scale_, gate_, up_, down_, row_alpha_;
  std::vector<std::uint16_t> got_;
};

TEST(ActivateTiles, HasTheBitsOfTheReference) {
  HALFBYTE_NEED_HOPPER();
  for (const ActivationSpec& activation : test::kActivations) {
    for (const std::int64_t intermediate_size : {16, 96, 1856, 2080}) {
      for (const int tile_tokens : list_tile_tokens(GemmOutput::kScaledRows)) {
        SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation.function)
                                        << ", I " << intermediate_size << ", " << tile_tokens);
        ActivateTiles({activation, intermediate_size, tile_tokens}).expect_bits();
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::sm90
