// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common/nvfp4_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "support/nvfp4_rows_on_host.h"

namespace halfbyte::cuda {
namespace {

Nvfp4Operand operand_of_cols(std::int64_t cols) {
  const auto layout = make_layout(DataLayout::kBlocked128x4, {1, 1, 16, cols}, {1, 32});
  EXPECT_TRUE(layout.ok());
  return layout.ok() ? operand_of(*layout) : Nvfp4Operand{};
}

TEST(Nvfp4Operand, HasThePaddingOfTheWeights) {
  const Nvfp4Operand narrow = operand_of_cols(144);
  EXPECT_EQ(narrow.padded_cols, 160);
  EXPECT_EQ(narrow.row_bytes(), 80);
  EXPECT_EQ(narrow.scale_cols, 12);
  EXPECT_EQ(operand_of_cols(64).scale_cols, 4);
}

// Every scale of every row of three experts has a byte of its own, inside the bound.
TEST(Nvfp4Operand, ScalesOfDifferentRowsNeverShareAByte) {
  const std::vector<std::int32_t> counts = {1, 0, 129, 128};
  const std::vector<std::int32_t> first = test::first_blocks(counts);
  const Nvfp4Operand operand = operand_of_cols(144);
  std::set<std::int64_t> bytes;
  std::int64_t total = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    for (std::int64_t row = 0; row < counts[e]; ++row) {
      for (std::int64_t group = 0; group < operand.scale_cols; ++group, ++total)
        bytes.insert(operand.scale_offset(first[e], row, group));
    }
  }
  EXPECT_EQ(std::ssize(bytes), total);
  EXPECT_GE(*bytes.begin(), 0);
  EXPECT_LT(*bytes.rbegin(), max_scale_blocks(258, 4) * operand.block_bytes());
}

// The worst distribution: one row more than full blocks in as many experts as there are.
TEST(MaxScaleBlocks, CoversTheWorstDistribution) {
  for (const std::int64_t experts : {1, 3, 128}) {
    for (std::int64_t routes = 0; routes < 1000; ++routes) {
      const std::int64_t touched = std::min(routes, experts);
      std::int64_t blocks = touched;
      std::int64_t left = routes - touched;
      blocks += left / 128;  // 128 more rows fill an expert's block and begin its next
      EXPECT_GE(max_scale_blocks(routes, experts), blocks) << routes << " over " << experts;
    }
  }
}

TEST(PlaceRoute, FindsTheExpertThatHasTheRoute) {
  const std::vector<std::int64_t> offset = {0, 0, 3, 3, 3, 8, 8};
  const std::vector<std::int32_t> count = {0, 3, 0, 0, 5, 0};
  for (std::int64_t route = 0; route < 8; ++route) {
    const RoutePlace place = place_route(offset.data(), count.data(), 6, route);
    EXPECT_EQ(place.expert, route < 3 ? 1 : 4) << route;
    EXPECT_EQ(place.row, route < 3 ? route : route - 3) << route;
  }
}

// Slots of equal size per expert: the rest of a slot is nobody's.
TEST(PlaceRoute, LeavesGapsAlone) {
  const std::vector<std::int64_t> offset = {0, 4, 8};
  const std::vector<std::int32_t> count = {2, 4};
  EXPECT_EQ(place_route(offset.data(), count.data(), 2, 1).expert, 0);
  EXPECT_EQ(place_route(offset.data(), count.data(), 2, 2).expert, -1);
  EXPECT_EQ(place_route(offset.data(), count.data(), 2, 4).expert, 1);
}

// The rows of the gate_up layout: up and gate in turns of 64 (nvfp4-moe 1.3).
TEST(UpSumColumn, IsTheRowOfTheWeights) {
  const std::int64_t half = 192;
  for (std::int64_t i = 0; i < half; ++i) {
    EXPECT_EQ(up_sum_column(i, true), interleave_row_64(half + i, half));
    EXPECT_EQ(up_sum_column(i, true) + 64, interleave_row_64(i, half));
    EXPECT_EQ(up_sum_column(i, false), i);
  }
}

}  // namespace
}  // namespace halfbyte::cuda
