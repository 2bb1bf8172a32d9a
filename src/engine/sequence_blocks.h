// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_SEQUENCE_BLOCKS_H_
#define HALFBYTE_ENGINE_SEQUENCE_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "engine/block_manager.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace halfbyte {

/// The cache blocks of one rank: each is free, or in the prefix cache, or one sequence's own. The
/// first blocks of a sequence's table are in the prefix cache, and held; the others are its own,
/// and only those are ever written. Thread rule: the engine thread.
class SequenceBlocks {
 public:
  /// `keeps_prefixes` false: nothing ever enters the prefix cache.
  SequenceBlocks(std::int64_t num_blocks, bool keeps_prefixes);

  std::int64_t num_blocks() const { return blocks_.num_blocks(); }
  /// Blocks that can be had: free ones, and those of prefixes that no sequence holds.
  std::int64_t num_free() const { return blocks_.num_free() + prefixes_.num_evictable(); }
  bool keeps_prefixes() const { return keeps_prefixes_; }
  std::int64_t num_evicted() const { return num_evicted_; }  // blocks, since start

  /// Gives a sequence without blocks the longest prefix of its tokens that is there, but none whose
  /// logits are wanted, as its last token's are, and sets num_cached_tokens.
  void take_prefix(Sequence& sequence);
  /// Tokens that take_prefix() would find.
  std::int64_t num_prefix_tokens(const Sequence& sequence) const;
  /// The same, remembered in the sequence from one call to the next: O(what is new).
  std::int64_t match_prefix(Sequence& sequence) const;
  /// Puts the sequence's whole, computed blocks into the prefix cache. Where the same tokens are
  /// there already, its table names those blocks from now on, and its own are free.
  void keep_prefix(Sequence& sequence);
  /// Extends a table with blocks of its own so that it holds `num_tokens` positions, and evicts
  /// prefixes for them. False, and nothing changes, when there are too few.
  bool grow(std::vector<std::int32_t>& block_table, std::int64_t num_tokens);
  /// Takes all blocks of a sequence; what is in the prefix cache stays there.
  void release(Sequence& sequence);
  /// Takes all blocks of a table that are its own: one that grow() alone has made.
  void release(std::vector<std::int32_t>& block_table) { blocks_.release(block_table); }
  /// Empties the prefix cache, but for what sequences hold.
  void forget_prefixes();

 private:
  std::vector<std::int32_t> find_prefix(const Sequence& sequence) const;
  bool evict_one();

  BlockManager blocks_;  // the free ones
  PrefixCache prefixes_;
  bool keeps_prefixes_;
  std::int64_t num_evicted_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SEQUENCE_BLOCKS_H_
