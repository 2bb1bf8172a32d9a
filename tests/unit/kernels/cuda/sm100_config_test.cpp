// SPDX-License-Identifier: Apache-2.0
//
// Plans of the sm_100 kernels, and what their GEMMs are pointed at: plain C++, tested without a
// GPU.
#include <gmock/gmock.h>

#include <vector>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"
#include "support/nvfp4_rows_on_host.h"

namespace halfbyte::sm100 {
namespace {

using testing::HasSubstr;

device::Properties b200() {
  return {"NVIDIA B200", 100, 148, 227 * 1024, 126 << 20, std::int64_t{180} << 30};
}

WeightLayout gate_up(std::int64_t experts, std::int64_t hidden, std::int64_t intermediate) {
  const auto layout = make_layout(DataLayout::kGateUpInterleave64Blocked128x4,
                                  {experts, 2, intermediate, hidden}, {1, 32});
  EXPECT_TRUE(layout.ok());
  return layout.ok() ? *layout : WeightLayout{};
}

std::string refusal(const GroupedGemmShape& shape, const device::Properties& device = b200()) {
  return can_run(shape, device).to_string();
}

TEST(GroupedGemmSm100, TakesANarrowTileForFewRows) {
  GroupedGemmShape shape = {gate_up(256, 7168, 2048), 8 * 4096};
  EXPECT_TRUE(can_run(shape, b200()).ok()) << refusal(shape);
  for (const double rows : {0.0, 1.0, 64.0, 128.0}) {
    shape.rows_per_expert = rows;
    EXPECT_EQ(select_config(shape, b200()).tile_tokens, kNarrowTile) << rows;
  }
  shape.rows_per_expert = 129;
  EXPECT_EQ(select_config(shape, b200()).tile_tokens, kWideTile);
  EXPECT_EQ(select_config(shape, b200()).num_ctas, 148);
  EXPECT_EQ(select_config(shape, b200()), select_config(shape, b200()));
}

TEST(GroupedGemmSm100, SaysWhatItCannotRun) {
  const GroupedGemmShape shape = {gate_up(8, 256, 64), 64};
  device::Properties hopper = b200();
  hopper.compute_capability = 90;
  EXPECT_THAT(refusal(shape, hopper), HasSubstr("compute capability 90, want 100 (Blackwell)"));
  EXPECT_THAT(refusal({gate_up(513, 256, 64), 64}), HasSubstr("513 experts on one rank"));
  WeightLayout narrow = shape.weights;
  narrow.padded_cols = 144;
  EXPECT_THAT(refusal({narrow, 64}), HasSubstr("columns in multiples of 32"));
  narrow = shape.weights;
  narrow.layout = DataLayout::kLinear;
  EXPECT_THAT(refusal({narrow, 64}), HasSubstr("layout linear, want scales in blocks of 128 x 4"));
  EXPECT_THAT(refusal({shape.weights, std::int64_t{1} << 31}), HasSubstr("fewer than 2^31"));
}

TEST(GroupArrays, LieBehindEachOther) {
  for (const int experts : {1, 3, 256, 512}) {
    std::size_t end = 0;
    for (int i = 0; i < kNumGroupArrays; ++i) {
      const auto array = static_cast<GroupArray>(i);
      EXPECT_EQ(group_array_offset(array, experts) % 16, 0U);
      EXPECT_GE(group_array_offset(array, experts), end);
      end = group_array_offset(array, experts) +
            group_entry_bytes(array) * static_cast<std::size_t>(experts);
    }
    EXPECT_LE(end, group_bytes(experts));
  }
}

// Rows of x: 4 bytes a route of 160 columns are 80; scales: blocks of 128 rows x 12.
TEST(GroupOperands, PointAtTheExpertsPart) {
  const WeightLayout weights = gate_up(4, 144, 96);
  const std::vector<std::int32_t> counts = {3, 0, 130, 1};
  const std::vector<std::int32_t> first = test::first_blocks(counts);
  EXPECT_THAT(first, testing::ElementsAre(0, 1, 1, 3));
  const GroupOperands last = group_operands(weights, 3, 133, 1, first[3]);
  EXPECT_EQ(last.rows, 256);  // two halves of 96, padded to 128 each
  EXPECT_EQ(last.tokens, 1);
  EXPECT_EQ(last.cols, 160);
  EXPECT_EQ(last.weight_codes, 3 * 256 * 80);
  EXPECT_EQ(last.weight_scale, 3 * 256 * 12);
  EXPECT_EQ(last.token_codes, 133 * 80);
  EXPECT_EQ(last.token_scale, 3 * 128 * 12);
  EXPECT_EQ(last.sums, 133 * 256 * 4);
}

// TMA wants 16 bytes; an expert's first route may be any.
TEST(GroupOperands, AreAligned) {
  for (const std::int64_t hidden : {16, 144, 2880, 7168}) {
    const WeightLayout weights = gate_up(8, hidden, 80);
    for (const std::int64_t route : {0, 1, 7, 131071}) {
      const GroupOperands at = group_operands(weights, 5, route, 1, 3);
      for (const std::int64_t offset :
           {at.weight_codes, at.weight_scale, at.token_codes, at.token_scale, at.sums})
        EXPECT_EQ(offset % 16, 0) << hidden << " " << route;
    }
  }
}

}  // namespace
}  // namespace halfbyte::sm100
