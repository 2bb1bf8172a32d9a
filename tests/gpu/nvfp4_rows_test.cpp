// SPDX-License-Identifier: Apache-2.0
//
// The kernels around the NVFP4 x NVFP4 grouped GEMM against the same in plain loops, bit for bit,
// with whatever lay in the memory before. They run on every GPU that the build is for.
#include "kernels/cuda/common/nvfp4_rows.h"

#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "device_data.h"
#include "formats/bf16.h"
#include "support/nvfp4_rows_on_host.h"

namespace halfbyte::cuda {
namespace {

using test::DeviceArray;

constexpr int kExperts = 5;
const std::vector<std::int32_t> kCounts = {3, 0, 140, 1,
                                           128};  // more and fewer than a block of rows
constexpr std::int64_t kRoutes = 272;
constexpr std::int64_t kTokens = 100;

std::vector<std::int64_t> offsets() {
  std::vector<std::int64_t> offset = {0};
  for (const std::int32_t count : kCounts)
    offset.push_back(offset.back() + count);
  return offset;
}

std::vector<std::int32_t> random_rows(std::mt19937& random) {
  std::vector<std::int32_t> rows(kRoutes);
  for (std::int32_t& row : rows)
    row = static_cast<std::int32_t>(random() % kTokens);
  return rows;
}

std::vector<float> normal(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> distribution(0.0F, 3.0F);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = distribution(random);
  return values;
}

std::vector<std::uint8_t> random_bytes(std::int64_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : bytes)
    byte = static_cast<std::uint8_t>(random() % 0x7F);
  return bytes;
}

// The routes on both sides.
struct Routes {
  std::vector<std::int64_t> host_offset = offsets();
  std::vector<std::int32_t> host_first = test::first_blocks(kCounts), host_row;
  DeviceArray<std::int64_t> offset;
  DeviceArray<std::int32_t> count, first, row;

  Routes(std::mt19937& random, const device::Stream& stream)
      : host_row(random_rows(random)),
        offset(host_offset, stream),
        count(kCounts, stream),
        first(host_first, stream),
        row(host_row, stream) {}

  RouteTable on_host() const {
    return {host_offset.data(), kCounts.data(), host_first.data(),
            host_row.data(),    kExperts,       kRoutes};
  }
  RouteTable on_device() const {
    return {offset.data(), count.data(), first.data(), row.data(), kExperts, kRoutes};
  }
};

// Output on both sides, holding the same bytes before.
template <typename T>
struct Output {
  std::vector<T> host;
  DeviceArray<T> device;
  Output(std::int64_t count, int poison, const device::Stream& stream)
      : host(static_cast<std::size_t>(count)), device(host.size(), stream) {
    std::memset(host.data(), poison, host.size() * sizeof(T));
    device.poison(poison);
  }
  void expect_equal(const char* what) const {
    const std::vector<T> got = device.download();
    std::size_t num_different = 0;
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (std::memcmp(&got[i], &host[i], sizeof(T)) != 0) ++num_different;
    }
    EXPECT_EQ(num_different, 0U) << what << ", of " << host.size();
  }
};

Nvfp4Operand operand_of_cols(std::int64_t cols, std::int64_t alignment) {
  return operand_of(
      make_layout(DataLayout::kBlocked128x4, {1, 1, 16, cols}, {1, alignment}).value());
}

class Nvfp4Rows : public testing::TestWithParam<bool> {  // scales of rows, or one for all
 protected:
  void SetUp() override {
    if (device::num_devices() == 0) GTEST_SKIP() << "needs a GPU";
    const int capability = device::read_properties(0).value().compute_capability;
    if (capability != 90 && capability != 100) GTEST_SKIP() << "needs a GPU of 9.0 or 10.0";
    stream_ = std::make_unique<device::Stream>(device::Stream::create().value());
  }
  bool dynamic() const { return GetParam(); }
  std::unique_ptr<device::Stream> stream_;
  std::mt19937 random_{1};
};

TEST_P(Nvfp4Rows, QuantizeHasTheBitsOfTheHost) {
  for (const std::int64_t cols : {16, 144, 2048, 7168}) {
    std::vector<std::uint16_t> x;
    for (const float value : normal(kTokens * cols, random_))
      x.push_back(f32_to_bf16(value));
    x[5] = 0x7FC0;  // NaN
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(cols), cols, std::uint16_t{0});
    const DeviceArray<std::uint16_t> device_x(x, *stream_);
    const std::vector<float> scale = {0.003F};
    const DeviceArray<float> device_scale(scale, *stream_);
    for (const int poison : {0x00, 0x7F, 0xFF}) {
      Output<std::uint8_t> codes(kTokens * cols / 2, poison, *stream_);
      Output<std::uint8_t> block_scale(kTokens * cols / 16, poison, *stream_);
      Output<float> row_scale(kTokens, poison, *stream_);
      ASSERT_TRUE(launch_quantize_rows(
                      kTokens, cols,
                      {device_x.data(), dynamic() ? nullptr : device_scale.data(),
                       codes.device.data(), block_scale.device.data(), row_scale.device.data()},
                      stream_->handle())
                      .ok());
      test::quantize_rows_on_host(kTokens, cols,
                                  {x.data(), dynamic() ? nullptr : scale.data(), codes.host.data(),
                                   block_scale.host.data(), row_scale.host.data()});
      codes.expect_equal("codes");
      block_scale.expect_equal("block scales");
      row_scale.expect_equal("row scales");
    }
  }
}

TEST_P(Nvfp4Rows, GatherHasTheBitsOfTheHost) {
  const Routes routes(random_, *stream_);
  for (const std::int64_t cols : {16, 144, 2048}) {
    const Nvfp4Operand operand = operand_of_cols(cols, 32);
    const auto codes = random_bytes(kTokens * cols / 2, random_);
    const auto block_scale = random_bytes(kTokens * cols / 16, random_);
    const DeviceArray<std::uint8_t> device_codes(codes, *stream_);
    const DeviceArray<std::uint8_t> device_scale(block_scale, *stream_);
    for (const int poison : {0x00, 0x7F, 0xFF}) {
      Output<std::uint8_t> route_codes(kRoutes * operand.row_bytes(), poison, *stream_);
      Output<std::uint8_t> route_scale(max_scale_blocks(kRoutes, kExperts) * operand.block_bytes(),
                                       poison, *stream_);
      ASSERT_TRUE(launch_gather_rows(operand,
                                     {routes.on_device(), device_codes.data(), device_scale.data(),
                                      route_codes.device.data(), route_scale.device.data()},
                                     stream_->handle())
                      .ok());
      test::gather_rows_on_host(operand, {routes.on_host(), codes.data(), block_scale.data(),
                                          route_codes.host.data(), route_scale.host.data()});
      route_codes.expect_equal("codes");
      route_scale.expect_equal("block scales");
    }
  }
}

// Scalars of an activation: gate, up [experts], row scales of tokens, one scale of h.
struct Scalars {
  std::vector<float> gate, up, row, h;
  explicit Scalars(std::mt19937& random)
      : gate(normal(kExperts, random)), up(normal(kExperts, random)), h({0.01F}) {
    for (const float value : normal(kTokens, random))
      row.push_back(std::fabs(value) / 2688);
    row[3] = 0.0F;  // a token without content
  }
};

TEST_P(Nvfp4Rows, ActivateHasTheBitsOfTheHost) {
  const Routes routes(random_, *stream_);
  const Scalars scalars(random_);
  const DeviceArray<float> gate(scalars.gate, *stream_), up(scalars.up, *stream_);
  const DeviceArray<float> row(scalars.row, *stream_), h(scalars.h, *stream_);
  for (const ActivationFunction function :
       {ActivationFunction::kSwiglu, ActivationFunction::kSwigluClamped, ActivationFunction::kRelu2,
        ActivationFunction::kGegluTanh}) {
    const ActivationSpec activation = {function, 1.702F, 1.0F, 7.0F};
    for (const std::int64_t cols : {16, 96, 768}) {
      const Nvfp4Operand operand = operand_of_cols(cols, activation.gated() ? 64 : 32);
      const std::int64_t sum_cols = activation.gated() ? 2 * operand.padded_cols : cols;
      const std::vector<float> sums = normal(kRoutes * sum_cols, random_);
      const DeviceArray<float> device_sums(sums, *stream_);
      Output<std::uint8_t> codes(kRoutes * operand.row_bytes(), 0xFF, *stream_);
      Output<std::uint8_t> block_scale(max_scale_blocks(kRoutes, kExperts) * operand.block_bytes(),
                                       0x7F, *stream_);
      Output<float> row_scale(kRoutes, 0x7F, *stream_);
      const bool gated = activation.gated();
      ASSERT_TRUE(launch_activate_rows(
                      operand,
                      {routes.on_device(), device_sums.data(), sum_cols, activation,
                       gated ? gate.data() : nullptr, up.data(), dynamic() ? row.data() : nullptr,
                       dynamic() ? nullptr : h.data(), codes.device.data(),
                       block_scale.device.data(), row_scale.device.data()},
                      stream_->handle())
                      .ok());
      test::activate_rows_on_host(
          operand,
          {routes.on_host(), sums.data(), sum_cols, activation,
           gated ? scalars.gate.data() : nullptr, scalars.up.data(),
           dynamic() ? scalars.row.data() : nullptr, dynamic() ? nullptr : scalars.h.data(),
           codes.host.data(), block_scale.host.data(), row_scale.host.data()});
      codes.expect_equal("codes");
      block_scale.expect_equal("block scales");
      row_scale.expect_equal("row scales");
    }
  }
}

TEST_P(Nvfp4Rows, ScaleHasTheBitsOfTheHost) {
  if (!dynamic()) GTEST_SKIP() << "rows have no scales of their own";
  const Routes routes(random_, *stream_);
  const std::vector<float> global_scale = normal(kExperts, random_);
  std::vector<float> row_scale = normal(kRoutes, random_);
  row_scale[7] = 0.0F;
  const DeviceArray<float> device_global(global_scale, *stream_), device_row(row_scale, *stream_);
  for (const std::int64_t cols : {16, 144, 7168}) {
    Output<float> rows(kRoutes * cols, 0, *stream_);
    rows.host = normal(kRoutes * cols, random_);
    rows.device.upload(rows.host);
    ASSERT_TRUE(
        launch_scale_rows(
            cols, {routes.on_device(), rows.device.data(), device_global.data(), device_row.data()},
            stream_->handle())
            .ok());
    test::scale_rows_on_host(
        cols, {routes.on_host(), rows.host.data(), global_scale.data(), row_scale.data()});
    rows.expect_equal("rows");
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Nvfp4Rows, testing::Bool(), [](const auto& suite) {
  return suite.param ? "OfEachRow" : "Given";
});

}  // namespace
}  // namespace halfbyte::cuda
