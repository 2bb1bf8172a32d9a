// SPDX-License-Identifier: Apache-2.0
//
// Tokens on the NVFP4 grid against the quantiser of formats, bit for bit, whatever lay in the
// memory before.
#include "kernels/cuda/sm90/grid_tokens.h"

#include <limits>
#include <random>

#include "device_data.h"
#include "grid_on_host.h"

namespace halfbyte::sm90 {
namespace {

using test::DeviceArray;

// With every kind of row: random ones, with a value that is not finite, zeros, nearly nothing,
// nothing finite.
std::vector<std::uint16_t> rows_of_every_kind(std::int64_t num_rows,
                                              std::int64_t cols,
                                              std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<std::uint16_t> x(static_cast<std::size_t>(num_rows * cols));
  for (std::uint16_t& value : x)
    value = f32_to_bf16(normal(random));
  const auto fill = [&](std::int64_t row, float value) {
    if (row < num_rows) std::fill_n(x.begin() + row * cols, cols, f32_to_bf16(value));
  };
  x[5] = 0x7FC0;                                                     // NaN
  if (num_rows > 1) x[static_cast<std::size_t>(cols + 9)] = 0xFF80;  // -infinity
  fill(2, 0.0F);
  fill(3, -0x1p-101F);
  fill(4, -0x1p-99F);
  fill(5, std::numeric_limits<float>::infinity());
  return x;
}

void expect_grid(std::int64_t num_rows, std::int64_t cols, bool dynamic, bool in_place) {
  std::mt19937 random(7);
  const device::Stream stream = device::Stream::create().value();
  const std::vector<std::uint16_t> x = rows_of_every_kind(num_rows, cols, random);
  const std::vector<cuda::QuantizeScale> scale = {cuda::make_quantize_scale(0.003F)};
  const DeviceArray<std::uint16_t> device_x(x, stream), other(x.size(), stream);
  const DeviceArray<cuda::QuantizeScale> device_scale(scale, stream);
  const DeviceArray<float> row_scale(static_cast<std::size_t>(num_rows), stream);
  other.poison(0xFF), row_scale.poison(0xFF);
  const DeviceArray<std::uint16_t>& grid = in_place ? device_x : other;
  const Status status = launch_grid_tokens(
      num_rows, cols,
      {device_x.data(), dynamic ? nullptr : device_scale.data(), grid.data(), row_scale.data()},
      stream.handle());
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::vector<std::uint16_t> got = grid.download();
  const std::vector<float> got_scale = row_scale.download();
  for (std::int64_t r = 0; r < num_rows; ++r) {
    const auto first = static_cast<std::size_t>(r * cols);
    const auto count = static_cast<std::size_t>(cols);
    const std::vector<float> row = test::widened(std::span(x).subspan(first, count));
    const float s = dynamic ? dynamic_row_scale(row.data(), cols) : 0.003F;
    EXPECT_EQ(
        test::count_different(std::span(got).subspan(first, count), test::grid_row(row, s).values),
        0)
        << "row " << r;
    if (!dynamic) continue;
    EXPECT_EQ(got_scale[static_cast<std::size_t>(r)], s) << "row " << r;
  }
}

TEST(GridTokens, HasTheValuesOfFormats) {
  HALFBYTE_NEED_HOPPER();
  for (const bool dynamic : {false, true}) {
    for (const bool in_place : {false, true}) {
      for (const std::int64_t cols : {16, 144, 2048, 7168}) {
        for (const std::int64_t num_rows : {1, 100}) {
          SCOPED_TRACE(testing::Message() << num_rows << " rows of " << cols << ", dynamic "
                                          << dynamic << ", in place " << in_place);
          expect_grid(num_rows, cols, dynamic, in_place);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::sm90
