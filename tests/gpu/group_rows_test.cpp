// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/group_rows.h"

#include "device_data.h"
#include "routing.h"

namespace halfbyte::cuda {
namespace {

using test::DeviceArray;
using test::group_on_host;
using test::Spread;

struct Case {
  GroupRowsShape shape;
  Spread spread;
  std::int64_t num_valid;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Spread spread : {Spread::kRandom, Spread::kOneExpert, Spread::kMissing,
                              Spread::kDuplicates, Spread::kSkewed}) {
    list.push_back({{1, 1, 4, 0, 4}, spread, 1});
    list.push_back({{7, 8, 256, 0, 256}, spread, 7});
    list.push_back({{64, 8, 128, 0, 128}, spread, 50});
    list.push_back({{255, 8, 256, 32, 32}, spread, 255});
    list.push_back({{256, 8, 512, 0, 512}, spread, 256});
    list.push_back({{257, 8, 30, 27, 3}, spread, 0});
    list.push_back({{330, 9, 64, 0, 64}, spread, 329});    // three blocks
    list.push_back({{640, 8, 128, 0, 128}, spread, 640});  // five
    list.push_back({{700, 8, 128, 0, 128}, spread, 700});  // six
    list.push_back({{800, 8, 128, 0, 128}, spread, 800});  // seven
    list.push_back({{1024, 8, 256, 64, 160}, spread, 1000});
    list.push_back({{4099, 6, 61, 20, 41}, spread, 4000});
    list.push_back({{16384, 8, 256, 0, 256}, spread, 16384});
  }
  return list;
}

void expect_grouped(const Case& c, int poison, const device::Stream& stream, unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<std::int32_t> ids = make_ids(c.shape, c.spread, random);
  const GroupRowsConfig config = select_config(c.shape);
  const DeviceArray<std::int32_t> device_ids(ids, stream);
  const DeviceArray<std::int32_t> valid(
      std::vector<std::int32_t>{static_cast<std::int32_t>(c.num_valid)}, stream);
  const auto experts = static_cast<std::size_t>(c.shape.num_local_experts);
  const DeviceArray<std::int64_t> offset(experts + 1, stream);
  const DeviceArray<std::int32_t> count(experts, stream);
  const DeviceArray<std::int32_t> route_row(ids.size(), stream);
  const DeviceArray<std::int32_t> slot_route(ids.size(), stream);
  const DeviceArray<std::uint8_t> workspace(config.workspace_bytes, stream);
  offset.poison(poison), count.poison(poison), route_row.poison(poison);
  slot_route.poison(poison), workspace.poison(poison);
  const GroupRowsArgs args = {device_ids.data(), valid.data(),      offset.data(),   count.data(),
                              route_row.data(),  slot_route.data(), workspace.data()};
  ASSERT_TRUE(launch(c.shape, config, args, stream.handle()).ok());
  auto want = group_on_host(c.shape, ids, c.num_valid);
  want.route_row.resize(ids.size(), -1);
  EXPECT_EQ(offset.download(), want.expert_offset);
  EXPECT_EQ(count.download(), want.expert_count);
  EXPECT_EQ(route_row.download(), want.route_row);
  EXPECT_EQ(slot_route.download(), want.slot_route);
}

TEST(GroupRows, IsTheStableOrderOfTheSpecification) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  unsigned seed = std::random_device()();
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message()
                 << c.shape.num_tokens << " tokens, " << c.shape.num_local_experts
                 << " experts, spread " << static_cast<int>(c.spread) << ", seed " << seed);
    for (const int poison : {0x00, 0x7F, 0xFF})
      expect_grouped(c, poison, stream, ++seed);
  }
}

TEST(GroupRows, LaunchesNothingForZeroTokens) {
  HALFBYTE_NEED_HOPPER();
  const device::Stream stream = device::Stream::create().value();
  const GroupRowsShape shape = {0, 8, 256, 0, 256};
  EXPECT_TRUE(launch(shape, select_config(shape), {}, stream.handle()).ok());
  EXPECT_TRUE(stream.synchronize().ok());
}

}  // namespace
}  // namespace halfbyte::cuda
