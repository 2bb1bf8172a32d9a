// SPDX-License-Identifier: Apache-2.0
//
// Plans of the kernels that every architecture shares.
#include <gtest/gtest.h>

#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/common/group_rows.h"

namespace halfbyte::cuda {
namespace {

TEST(GroupRowsConfig, CoversEverySlot) {
  for (const std::int64_t tokens : {1, 128, 129, 1024, 1025, 16384}) {
    const GroupRowsShape shape = {tokens, 8, 256, 0, 256};
    const GroupRowsConfig config = select_config(shape);
    EXPECT_GE(std::int64_t{config.num_blocks} * config.slots_per_block, shape.num_slots());
    EXPECT_EQ(config.workspace_bytes == 0, shape.num_slots() <= 8192);
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
}  // namespace halfbyte::cuda
