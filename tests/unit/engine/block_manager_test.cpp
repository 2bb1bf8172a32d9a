// SPDX-License-Identifier: Apache-2.0
#include "engine/block_manager.h"

#include <gtest/gtest.h>

#include <set>

namespace halfbyte {
namespace {

// 16 positions a block: 1..16 need one, 17 a second.
TEST(BlockManager, GrowsATableByWholeBlocks) {
  BlockManager blocks(4);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(blocks.grow(table, 1));
  EXPECT_EQ(table.size(), 1U);
  ASSERT_TRUE(blocks.grow(table, 16));
  EXPECT_EQ(table.size(), 1U);
  ASSERT_TRUE(blocks.grow(table, 17));
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(blocks.num_free(), 2);
}

TEST(BlockManager, ChangesNothingWhenTooFewAreFree) {
  BlockManager blocks(2);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(blocks.grow(table, 16));
  EXPECT_FALSE(blocks.grow(table, 16 * 3));
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(blocks.num_free(), 1);
}

TEST(BlockManager, NeverHandsABlockOutTwice) {
  BlockManager blocks(8);
  std::vector<std::int32_t> a;
  std::vector<std::int32_t> b;
  ASSERT_TRUE(blocks.grow(a, 48));
  ASSERT_TRUE(blocks.grow(b, 48));
  blocks.release(a);
  EXPECT_TRUE(a.empty());
  ASSERT_TRUE(blocks.grow(a, 80));
  std::set<std::int32_t> held(a.begin(), a.end());
  held.insert(b.begin(), b.end());
  EXPECT_EQ(held.size(), 8U);
  EXPECT_EQ(blocks.num_free(), 0);
  blocks.release(a);
  blocks.release(b);
  EXPECT_EQ(blocks.num_free(), blocks.num_blocks());
}

TEST(BlockManager, StartsWithTheLowestBlocks) {
  BlockManager blocks(1000);
  std::vector<std::int32_t> table;
  ASSERT_TRUE(blocks.grow(table, 33));
  EXPECT_EQ(table, (std::vector<std::int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace halfbyte
