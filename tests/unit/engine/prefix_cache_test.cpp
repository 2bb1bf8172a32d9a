// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace halfbyte {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Ids = std::vector<std::int32_t>;

// `count` blocks of tokens: all of block i are `first` + i.
Ids tokens_of(std::int32_t first, std::int32_t count) {
  Ids tokens;
  for (std::int32_t i = 0; i < count; ++i) {
    tokens.insert(tokens.end(), kKvBlockTokens, first + i);
  }
  return tokens;
}

// Puts `blocks` in for `tokens`, one behind the other, and returns the path that is there then.
Ids insert(PrefixCache& cache, std::string_view salt, const Ids& tokens, const Ids& blocks) {
  Ids path;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto block = std::span(tokens).subspan(i * kKvBlockTokens, kKvBlockTokens);
    path.push_back(cache.insert(salt, path, block, blocks[i]));
  }
  return path;
}

TEST(PrefixCache, FindsTheLongestPathOfWholeBlocks) {
  PrefixCache cache(8);
  EXPECT_THAT(cache.find("", tokens_of(1, 3)), IsEmpty());
  EXPECT_THAT(insert(cache, "", tokens_of(1, 3), {4, 2, 7}), ElementsAre(4, 2, 7));
  EXPECT_THAT(cache.find("", tokens_of(1, 4)), ElementsAre(4, 2, 7));
  EXPECT_THAT(cache.find("", tokens_of(1, 2)), ElementsAre(4, 2));
  Ids tokens = tokens_of(1, 2);
  tokens.pop_back();
  EXPECT_THAT(cache.find("", tokens), ElementsAre(4)) << "the second block is not whole";
  tokens = tokens_of(1, 3);
  tokens[kKvBlockTokens * 2 - 1] = 99;
  EXPECT_THAT(cache.find("", tokens), ElementsAre(4)) << "the second block differs at its end";
  EXPECT_THAT(cache.find("", tokens_of(2, 2)), IsEmpty()) << "same tokens, another position";
  EXPECT_THAT(cache.find("", {}), IsEmpty());
}

// Blocks 4, 2, 7 are the path; the last one is evicted, and block 7 comes back for other tokens.
TEST(PrefixCache, AMatchFollowsWhatIsPutInAndTakenOut) {
  PrefixCache cache(8);
  const Ids tokens = tokens_of(1, 4);
  PrefixMatch match;
  const auto length = [&] {
    cache.update(match, "", tokens);
    EXPECT_EQ(match.num_blocks, std::ssize(cache.find("", tokens)));
    return match.num_blocks;
  };
  EXPECT_EQ(length(), 0);
  const Ids path = insert(cache, "", tokens_of(1, 2), {4, 2});
  EXPECT_EQ(length(), 2);
  EXPECT_EQ(cache.insert("", path, tokens_of(3, 1), 7), 7);
  EXPECT_EQ(length(), 3);
  cache.release(Ids{4, 2, 7});
  EXPECT_EQ(cache.evict(), 7);
  EXPECT_EQ(length(), 2);
  insert(cache, "salt", tokens_of(1, 1), {7});
  EXPECT_EQ(length(), 2);
  EXPECT_EQ(cache.evict(), 2);
  EXPECT_EQ(cache.evict(), 4);
  EXPECT_EQ(length(), 0);
}

// The match ended in a block that has since come back for the same tokens behind others.
TEST(PrefixCache, AMatchIsNotMisledByABlockThatComesBack) {
  PrefixCache cache(8);
  PrefixMatch match;
  const Ids tokens = tokens_of(1, 2);
  insert(cache, "", tokens, {0, 1});
  cache.update(match, "", tokens);
  EXPECT_EQ(match.num_blocks, 2);
  cache.release(Ids{0, 1});
  while (cache.evict()) {
  }
  insert(cache, "other", tokens, {0, 1});
  cache.update(match, "", tokens);
  EXPECT_EQ(match.num_blocks, 0);
}

TEST(PrefixCache, SaltsShareNothing) {
  PrefixCache cache(8);
  insert(cache, "a", tokens_of(1, 2), {0, 1});
  EXPECT_THAT(cache.find("b", tokens_of(1, 2)), IsEmpty());
  EXPECT_THAT(cache.find("", tokens_of(1, 2)), IsEmpty());
  EXPECT_THAT(insert(cache, "b", tokens_of(1, 2), {2, 3}), ElementsAre(2, 3));
  EXPECT_THAT(cache.find("a", tokens_of(1, 2)), ElementsAre(0, 1));
}

TEST(PrefixCache, KeepsTheBlockThatWasThereFirst) {
  PrefixCache cache(8);
  insert(cache, "", tokens_of(1, 2), {0, 1});
  EXPECT_THAT(insert(cache, "", tokens_of(1, 3), {5, 6, 7}), ElementsAre(0, 1, 7));
  EXPECT_EQ(cache.num_blocks(), 3);
}

TEST(PrefixCache, EvictsLeavesAndTheLongestReleasedFirst) {
  PrefixCache cache(8);
  const Ids old = insert(cache, "", tokens_of(1, 2), {0, 1});
  Ids tokens = tokens_of(1, 1);
  const Ids other = tokens_of(50, 1);
  tokens.insert(tokens.end(), other.begin(), other.end());
  const Ids young = insert(cache, "", tokens, {6, 2});
  EXPECT_THAT(young, ElementsAre(0, 2));
  EXPECT_EQ(cache.num_evictable(), 0);
  EXPECT_EQ(cache.evict(), std::nullopt) << "all are held";
  cache.release(young);
  EXPECT_EQ(cache.num_evictable(), 1) << "block 0 has another holder";
  cache.release(old);
  EXPECT_EQ(cache.num_evictable(), 3);
  EXPECT_EQ(cache.evict(), 2);
  EXPECT_EQ(cache.evict(), 1);
  EXPECT_EQ(cache.evict(), 0) << "a leaf now";
  EXPECT_EQ(cache.evict(), std::nullopt);
  EXPECT_EQ(cache.num_blocks(), 0);
  EXPECT_EQ(cache.num_evictable(), 0);
}

TEST(PrefixCache, WhatIsHeldAgainIsNotEvictedAndIsYoungAfterwards) {
  PrefixCache cache(8);
  cache.release(insert(cache, "", tokens_of(1, 1), {0}));
  cache.release(insert(cache, "", tokens_of(2, 1), {1}));
  const Ids path = cache.find("", tokens_of(1, 1));
  cache.hold(path);
  EXPECT_EQ(cache.num_evictable(), 1);
  cache.release(path);
  EXPECT_EQ(cache.evict(), 1);
  EXPECT_EQ(cache.evict(), 0);
}

TEST(PrefixCache, AnEvictedBlockMayStandForOtherTokens) {
  PrefixCache cache(2);
  cache.release(insert(cache, "", tokens_of(1, 1), {0}));
  EXPECT_EQ(cache.evict(), 0);
  insert(cache, "", tokens_of(7, 1), {0});
  EXPECT_THAT(cache.find("", tokens_of(1, 1)), IsEmpty());
  EXPECT_THAT(cache.find("", tokens_of(7, 1)), ElementsAre(0));
}

}  // namespace
}  // namespace halfbyte
