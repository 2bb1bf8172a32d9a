// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/combine_rows.h"

#include "device_data.h"
#include "formats/bf16.h"
#include "formats/convert.h"
#include "kernels/reference/combine.h"
#include "routing.h"

namespace halfbyte::cuda {
namespace {

using test::DeviceArray;
using test::group_on_host;
using test::Spread;

struct Inputs {
  std::vector<std::int32_t> ids, slot_route;
  std::vector<float> weights, rows, shared;
  std::int64_t num_valid = 0;
};

Inputs make_inputs(const CombineRowsShape& shape, Spread spread, std::mt19937& random) {
  Inputs in;
  const GroupRowsShape group = {shape.num_tokens, shape.top_k, shape.num_experts, 0,
                                static_cast<int>(shape.num_experts)};
  in.ids = make_ids(group, spread, random);
  in.num_valid = shape.num_tokens - shape.num_tokens / 5;
  const auto routes = group_on_host(group, in.ids, in.num_valid);
  in.slot_route = routes.slot_route;
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < in.ids.size(); ++i)
    in.weights.push_back(normal(random));
  in.rows.resize(in.ids.size() * static_cast<std::size_t>(shape.hidden_size));
  for (float& v : in.rows)
    v = shape.row_dtype == DType::kBf16 ? round_to_bf16(normal(random)) : normal(random);
  in.shared.resize(static_cast<std::size_t>(shape.num_tokens * shape.hidden_size));
  for (float& v : in.shared)
    v = normal(random);
  return in;
}

/// kernels/reference/combine, then the shared row, then one rounding.
std::vector<std::byte> reference_y(const CombineRowsShape& shape, const Inputs& in, bool shared) {
  const auto hidden = static_cast<std::size_t>(shape.hidden_size);
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  const std::size_t size = shape.y_dtype == DType::kF32 ? 4 : 2;
  std::vector<std::byte> y(static_cast<std::size_t>(shape.num_tokens) * hidden * size);
  std::vector<float> scratch(reference::kNumCombineGroups * hidden);
  for (std::size_t t = 0; t < static_cast<std::size_t>(shape.num_tokens); ++t) {
    std::vector<const float*> rows(top_k, nullptr);
    for (std::size_t s = 0; s < top_k; ++s) {
      const std::int32_t route = in.slot_route[t * top_k + s];
      if (route >= 0) rows[s] = in.rows.data() + static_cast<std::size_t>(route) * hidden;
    }
    std::vector<float> sum(hidden, 0.0F);
    reference::combine_token(std::span(in.ids).subspan(t * top_k, top_k),
                             std::span(in.weights).subspan(t * top_k, top_k), rows,
                             shape.num_experts, shape.hidden_size, scratch.data(), sum.data());
    for (std::size_t i = 0; shared && static_cast<std::int64_t>(t) < in.num_valid && i < hidden;
         ++i)
      sum[i] += in.shared[t * hidden + i];
    narrow_from_f32(shape.y_dtype, sum.data(), shape.hidden_size, y.data() + t * hidden * size);
  }
  return y;
}

std::vector<std::byte> rows_as(DType dtype, const std::vector<float>& rows) {
  std::vector<std::byte> bytes(rows.size() * (dtype == DType::kF32 ? 4 : 2));
  narrow_from_f32(dtype, rows.data(), static_cast<std::int64_t>(rows.size()), bytes.data());
  return bytes;
}

void expect_equal_bits(const CombineRowsShape& shape, Spread spread, unsigned seed) {
  const device::Stream stream = device::Stream::create().value();
  std::mt19937 random(seed);
  const Inputs in = make_inputs(shape, spread, random);
  const DeviceArray<std::byte> rows(rows_as(shape.row_dtype, in.rows), stream);
  const DeviceArray<std::int32_t> ids(in.ids, stream);
  const DeviceArray<std::int32_t> slot_route(in.slot_route, stream);
  const DeviceArray<float> weights(in.weights, stream);
  const DeviceArray<float> shared(in.shared, stream);
  const DeviceArray<std::int32_t> valid(
      std::vector<std::int32_t>{static_cast<std::int32_t>(in.num_valid)}, stream);
  for (const bool with_shared : {false, true}) {
    const std::vector<std::byte> want = reference_y(shape, in, with_shared);
    const DeviceArray<std::byte> y(want.size(), stream);
    y.poison(0x7F);
    const CombineRowsArgs args = {rows.data(),    ids.data(),
                                  weights.data(), slot_route.data(),
                                  valid.data(),   with_shared ? shared.data() : nullptr,
                                  y.data()};
    ASSERT_TRUE(launch(shape, select_config(shape), args, stream.handle()).ok());
    EXPECT_EQ(y.download(), want) << "shared " << with_shared;
  }
}

// Bit for bit the reference, for few and many experts, duplicates, absent slots and more slots than
// one prefetch.
TEST(CombineRows, EqualsTheReferenceBitForBit) {
  HALFBYTE_NEED_HOPPER();
  unsigned seed = std::random_device()();
  const CombineRowsShape shapes[] = {
      {1, 8, 256, 2048, DType::kF32, DType::kBf16},   {9, 8, 128, 528, DType::kBf16, DType::kBf16},
      {65, 2, 8, 4096, DType::kF32, DType::kF32},     {40, 10, 30, 2880, DType::kF32, DType::kF16},
      {33, 22, 512, 1040, DType::kBf16, DType::kF32}, {20, 1, 3, 16, DType::kF32, DType::kF32},
      {17, 64, 61, 64, DType::kF32, DType::kBf16}};
  for (const CombineRowsShape& shape : shapes) {
    for (const Spread spread : {Spread::kRandom, Spread::kMissing, Spread::kDuplicates}) {
      SCOPED_TRACE(testing::Message()
                   << shape.num_tokens << " x " << shape.hidden_size << " seed " << seed + 1);
      expect_equal_bits(shape, spread, ++seed);
    }
  }
}

}  // namespace
}  // namespace halfbyte::cuda
