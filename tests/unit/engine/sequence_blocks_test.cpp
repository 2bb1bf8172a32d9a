// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace halfbyte {
namespace {

std::unique_ptr<Sequence> sequence_of(std::vector<std::int32_t> tokens, std::string salt = "") {
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = std::move(tokens);
  sequence->cache_salt = std::move(salt);
  return sequence;
}

// Gives the sequence blocks for all its tokens, and marks them as computed.
bool compute(SequenceBlocks& blocks, Sequence& sequence) {
  if (!blocks.grow(sequence.block_table, sequence.num_tokens())) return false;
  sequence.num_cached_tokens = sequence.num_tokens();
  blocks.keep_prefix(sequence);
  return true;
}

std::vector<std::int32_t> numbers(std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i)
    tokens[i] = static_cast<std::int32_t>(i);
  return tokens;
}

TEST(SequenceBlocks, ASecondSequenceStartsBehindTheFirstOnesWholeBlocks) {
  SequenceBlocks blocks(8, true);
  const auto first = sequence_of(numbers(40));
  blocks.take_prefix(*first);
  EXPECT_EQ(first->num_cached_tokens, 0);
  ASSERT_TRUE(compute(blocks, *first));
  EXPECT_EQ(first->num_shared_blocks, 2U);

  const auto second = sequence_of(numbers(50));
  blocks.take_prefix(*second);
  EXPECT_EQ(second->num_cached_tokens, 32) << "while the first one still runs";
  ASSERT_TRUE(compute(blocks, *second));
  EXPECT_EQ(second->block_table[0], first->block_table[0]);
  EXPECT_EQ(second->block_table[1], first->block_table[1]);
  EXPECT_NE(second->block_table[2], first->block_table[2]) << "the first one still writes its own";
  EXPECT_EQ(blocks.num_free(), 8 - 3 - 2);
  blocks.release(*first);
  blocks.release(*second);
  EXPECT_EQ(blocks.num_free(), 8);
}

// 32 tokens are two whole blocks, but the last token is left to compute.
TEST(SequenceBlocks, TheLastTokenIsNeverTaken) {
  SequenceBlocks blocks(8, true);
  const auto first = sequence_of(numbers(32));
  ASSERT_TRUE(compute(blocks, *first));
  blocks.release(*first);
  const auto same = sequence_of(numbers(32));
  EXPECT_EQ(blocks.num_prefix_tokens(*same), 16);
  blocks.take_prefix(*same);
  EXPECT_EQ(same->num_cached_tokens, 16);
  // Its second block, computed again, is the one that was there.
  ASSERT_TRUE(compute(blocks, *same));
  blocks.release(*same);
  EXPECT_EQ(blocks.num_free(), 8);
  EXPECT_EQ(blocks.num_prefix_tokens(*sequence_of(numbers(33))), 32);
  EXPECT_EQ(blocks.num_prefix_tokens(*sequence_of(numbers(33), "salt")), 0);
}

// 48 tokens in the cache. The logprobs of tokens 40 to 49 need the logits of positions 39 to 48.
TEST(SequenceBlocks, NoPositionIsTakenWhoseLogitsAreWanted) {
  SequenceBlocks blocks(8, true);
  const auto first = sequence_of(numbers(50));
  ASSERT_TRUE(compute(blocks, *first));
  blocks.release(*first);
  const auto scored = sequence_of(numbers(50));
  scored->num_prompt_tokens = 50;
  scored->num_unscored_tokens = 10;
  EXPECT_EQ(scored->first_unscored_row(), 39);
  EXPECT_EQ(blocks.num_prefix_tokens(*scored), 32);
  EXPECT_EQ(blocks.match_prefix(*scored), 32);
  scored->num_unscored_tokens = 49;
  EXPECT_EQ(blocks.num_prefix_tokens(*scored), 0);
  scored->num_unscored_tokens = 0;
  EXPECT_EQ(blocks.match_prefix(*scored), 48);
}

TEST(SequenceBlocks, EvictsOnlyWhatIsWanted) {
  SequenceBlocks blocks(4, true);
  const auto first = sequence_of(numbers(48));
  ASSERT_TRUE(compute(blocks, *first));
  blocks.release(*first);
  std::vector<std::int32_t> table;
  EXPECT_TRUE(blocks.grow(table, 32));
  EXPECT_EQ(blocks.num_evicted(), 1);
  EXPECT_EQ(blocks.num_prefix_tokens(*sequence_of(numbers(49))), 32);
  EXPECT_FALSE(blocks.grow(table, 80));
  EXPECT_EQ(blocks.num_evicted(), 1);
  blocks.release(table);
  blocks.forget_prefixes();
  EXPECT_EQ(blocks.num_evicted(), 1) << "nobody wanted those";
  EXPECT_EQ(blocks.num_prefix_tokens(*sequence_of(numbers(49))), 0);
  EXPECT_EQ(blocks.num_free(), 4);
}

TEST(SequenceBlocks, KeepsNothingWhenItShallNot) {
  SequenceBlocks blocks(4, false);
  const auto first = sequence_of(numbers(48));
  ASSERT_TRUE(compute(blocks, *first));
  EXPECT_EQ(first->num_shared_blocks, 0U);
  blocks.release(*first);
  EXPECT_EQ(blocks.num_prefix_tokens(*sequence_of(numbers(48))), 0);
}

// The cache as a list of prefixes: who holds each and when it was last released.
class PrefixModel {
 public:
  using Prefix = std::pair<std::string, std::vector<std::int32_t>>;  // salt, whole blocks

  static Prefix prefix_of(const Sequence& sequence, std::int64_t num_tokens) {
    return {sequence.cache_salt, {sequence.tokens.begin(), sequence.tokens.begin() + num_tokens}};
  }
  std::int64_t longest(const Sequence& sequence) const {
    std::int64_t length = 0;
    while (length + kKvBlockTokens < sequence.num_tokens() &&
           entries_.contains(prefix_of(sequence, length + kKvBlockTokens))) {
      length += kKvBlockTokens;
    }
    return length;
  }
  // Of the first `num_tokens` tokens; puts in what is not there.
  void hold(const Sequence& sequence, std::int64_t from, std::int64_t num_tokens) {
    for (std::int64_t length = from + kKvBlockTokens; length <= num_tokens;
         length += kKvBlockTokens) {
      ++entries_[prefix_of(sequence, length)].num_holders;
    }
  }
  void release(const Sequence& sequence, std::int64_t num_tokens) {
    ++clock_;
    for (std::int64_t length = kKvBlockTokens; length <= num_tokens; length += kKvBlockTokens) {
      Entry& entry = entries_.at(prefix_of(sequence, length));
      if (--entry.num_holders == 0) entry.released_at = clock_;
    }
  }
  // Drops the prefix that nobody holds, nothing continues, and that was released the longest ago.
  void evict() {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.num_holders > 0 || is_continued(it)) continue;
      if (oldest == entries_.end() || it->second.released_at < oldest->second.released_at) {
        oldest = it;
      }
    }
    ASSERT_NE(oldest, entries_.end());
    entries_.erase(oldest);
  }
  std::int64_t num_held() const { return count(true); }
  std::int64_t num_unheld() const { return count(false); }

 private:
  struct Entry {
    int num_holders = 0;
    std::int64_t released_at = 0;
  };
  using Entries = std::map<Prefix, Entry>;

  // Sorted by tokens, what continues a prefix comes right behind it.
  bool is_continued(Entries::const_iterator it) const {
    const auto next = std::next(it);
    const auto& [salt, tokens] = it->first;
    return next != entries_.end() && next->first.first == salt &&
           next->first.second.size() > tokens.size() &&
           std::equal(tokens.begin(), tokens.end(), next->first.second.begin());
  }
  std::int64_t count(bool held) const {
    return std::ranges::count_if(
        entries_, [held](const auto& entry) { return (entry.second.num_holders > 0) == held; });
  }

  Entries entries_;
  std::int64_t clock_ = 0;
};

// Random sequences over few tokens, so that they share much; each is admitted, computed in pieces,
// grows, and ends. Both sides see the same calls.
class RandomRun {
 public:
  void step() {
    if (below(3) == 0 || running_.empty()) {
      admit();
    } else if (below(4) == 0) {
      finish(static_cast<std::size_t>(below(static_cast<std::int64_t>(running_.size()))));
    } else {
      grow(*running_[static_cast<std::size_t>(below(static_cast<std::int64_t>(running_.size())))]);
    }
    check();
    watch();
  }
  void finish_all() {
    while (!running_.empty())
      finish(0);
    check();
    EXPECT_EQ(blocks_.num_free(), kBlocks);
    EXPECT_GT(model_.num_unheld(), 0);
  }

 private:
  static constexpr std::int64_t kBlocks = 24;

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(end));
  }
  std::vector<std::int32_t> random_tokens() {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 1 + below(4); i > 0; --i) {
      tokens.insert(tokens.end(), kKvBlockTokens, static_cast<std::int32_t>(below(3)));
    }
    tokens.resize(tokens.size() - static_cast<std::size_t>(below(kKvBlockTokens)));
    return tokens;
  }
  void evict_for(const Sequence& sequence) {
    const std::int64_t missing =
        blocks_for(sequence.num_tokens()) - static_cast<std::int64_t>(sequence.block_table.size());
    for (std::int64_t free = kBlocks - num_used(); free < missing; ++free)
      model_.evict();
  }
  // Blocks that are not free: those of the tree, and running sequences' own.
  std::int64_t num_used() const {
    std::int64_t used = model_.num_held() + model_.num_unheld();
    for (const auto& sequence : running_) {
      used += static_cast<std::int64_t>(sequence->block_table.size()) -
              sequence->num_cached_tokens / kKvBlockTokens;
    }
    return used;
  }
  void admit() {
    auto sequence = sequence_of(random_tokens(), below(2) == 0 ? "" : "salt");
    const std::int64_t prefix = model_.longest(*sequence);
    blocks_.take_prefix(*sequence);
    ASSERT_EQ(sequence->num_cached_tokens, prefix);
    model_.hold(*sequence, 0, prefix);
    running_.push_back(std::move(sequence));
    compute(*running_.back());
  }
  // All of its tokens; a sequence that finds no room ends.
  void compute(Sequence& sequence) {
    const std::int64_t missing =
        blocks_for(sequence.num_tokens()) - static_cast<std::int64_t>(sequence.block_table.size());
    if (missing > blocks_.num_free()) {
      EXPECT_FALSE(blocks_.grow(sequence.block_table, sequence.num_tokens()));
      finish(index_of(sequence));
      return;
    }
    evict_for(sequence);
    ASSERT_TRUE(blocks_.grow(sequence.block_table, sequence.num_tokens()));
    model_.hold(sequence, sequence.num_cached_tokens / kKvBlockTokens * kKvBlockTokens,
                sequence.num_tokens());
    sequence.num_cached_tokens = sequence.num_tokens();
    blocks_.keep_prefix(sequence);
  }
  void grow(Sequence& sequence) {
    sequence.tokens.insert(sequence.tokens.end(), static_cast<std::size_t>(1 + below(20)),
                           static_cast<std::int32_t>(below(3)));
    compute(sequence);
  }
  std::size_t index_of(const Sequence& sequence) const {
    std::size_t i = 0;
    while (running_[i].get() != &sequence)
      ++i;
    return i;
  }
  void finish(std::size_t i) {
    model_.release(*running_[i], running_[i]->num_cached_tokens);
    blocks_.release(*running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // A sequence that waits knows what it would find, whatever was put in and taken out meanwhile.
  void watch() {
    if (below(20) == 0) waiting_ = sequence_of(random_tokens());
    ASSERT_EQ(blocks_.match_prefix(*waiting_), model_.longest(*waiting_));
  }
  // No block is lost, and none is written by two: a sequence's own blocks are in no other table.
  void check() const {
    std::set<std::int32_t> shared, own;
    for (const auto& sequence : running_) {
      for (std::size_t i = 0; i < sequence->block_table.size(); ++i) {
        const std::int32_t block = sequence->block_table[i];
        if (i < sequence->num_shared_blocks) {
          shared.insert(block);
        } else {
          ASSERT_TRUE(own.insert(block).second) << "two sequences write block " << block;
        }
      }
    }
    for (const std::int32_t block : own)
      ASSERT_FALSE(shared.contains(block));
    ASSERT_EQ(static_cast<std::int64_t>(shared.size()), model_.num_held());
    ASSERT_EQ(blocks_.num_free(), kBlocks - static_cast<std::int64_t>(shared.size() + own.size()));
  }

  std::mt19937 rng_{5};
  SequenceBlocks blocks_{kBlocks, true};
  PrefixModel model_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::unique_ptr<Sequence> waiting_ = sequence_of(random_tokens());
};

TEST(SequenceBlocks, EqualAListOfPrefixesOverTenThousandArrivalsAndEnds) {
  RandomRun run;
  for (int i = 0; i < 30000 && !testing::Test::HasFatalFailure(); ++i)
    run.step();
  run.finish_all();
}

}  // namespace
}  // namespace halfbyte
