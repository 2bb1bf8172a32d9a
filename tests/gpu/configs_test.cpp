// SPDX-License-Identifier: Apache-2.0
//
// Plans of the sm_90 kernels: plain C++, tested without a GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/sm90/combine_rows.h"
#include "kernels/cuda/sm90/group_rows.h"
#include "kernels/cuda/sm90/moe_decode_bf16_nvfp4.h"

namespace halfbyte::sm90 {
namespace {

device::Properties h200() {
  return {"NVIDIA H200", 90, 132, 227 * 1024, 60 << 20, std::int64_t{139} << 30};
}

MoeDecodeShape deepseek(double rows, double experts) {
  return {256, 7168, 2048, true, DType::kF32, rows, experts};
}

// Two CTAs share the 228 KB of a multiprocessor, each with 1 KB of the system's.
TEST(MoeDecodeConfig, TwoCtasFitAMultiprocessor) {
  for (const MoeDecodeTile& tile : list_moe_decode_tiles()) {
    for (const int experts : {1, 128, 256, 512}) {
      const MoeDecodeShape shape = {experts, 7168, 2048};
      EXPECT_LE(2 * (make_config(shape, tile, h200()).shared_bytes + 1024 + 1024), 228 * 1024)
          << make_config(shape, tile, h200()).to_string();
      EXPECT_GE(tile.num_stages, 2);
    }
  }
}

TEST(MoeDecodeConfig, TakesSmallTilesForFewExperts) {
  EXPECT_EQ(select_config(deepseek(8, 8), h200()).tile.row_groups, 1);
  EXPECT_EQ(select_config(deepseek(64, 58), h200()).tile.row_groups, 4);
  EXPECT_EQ(select_config(deepseek(512, 218), h200()).tile.token_blocks, 1);
  EXPECT_EQ(select_config(deepseek(2048, 256), h200()).tile.token_blocks, 2);
  EXPECT_EQ(select_config(deepseek(8, 8), h200()), select_config(deepseek(8, 8), h200()));
}

TEST(MoeDecodeConfig, SaysWhatItCannotRun) {
  device::Properties ampere = h200();
  ampere.compute_capability = 80;
  EXPECT_EQ(can_run(deepseek(8, 8), ampere).message(),
            "moe_decode_bf16_nvfp4: compute capability 80, want 90 (Hopper)");
  EXPECT_TRUE(can_run(deepseek(8, 8), h200()).ok());
  EXPECT_EQ(can_run(MoeDecodeShape{8, 7160, 2048}, h200()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(can_run(MoeDecodeShape{513, 7168, 2048}, h200()).code(), StatusCode::kUnsupported);
}

TEST(GroupRowsConfig, CoversEverySlot) {
  for (const std::int64_t tokens : {1, 256, 257, 16384}) {
    const GroupRowsShape shape = {tokens, 8, 256, 0, 256};
    const GroupRowsConfig config = select_config(shape);
    EXPECT_GE(std::int64_t{config.num_blocks} * config.slots_per_block, shape.num_slots());
    EXPECT_EQ(config.workspace_bytes == 0, shape.num_slots() <= 2048);
  }
  EXPECT_EQ(can_run(GroupRowsShape{1, 8, 1024, 0, 1024}).code(), StatusCode::kUnsupported);
}

TEST(CombineRowsConfig, SaysWhatItCannotRun) {
  EXPECT_TRUE(can_run(CombineRowsShape{1, 8, 256, 7168}).ok());
  EXPECT_EQ(can_run(CombineRowsShape{1, 65, 256, 7168}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(can_run(CombineRowsShape{1, 8, 256, 7160}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(can_run(CombineRowsShape{1, 8, 256, 16, DType::kF16}).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace halfbyte::sm90
