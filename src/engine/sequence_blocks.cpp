// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence_blocks.h"

#include <optional>
#include <span>

namespace halfbyte {
namespace {

std::span<const std::int32_t> tokens_of_blocks(const Sequence& sequence,
                                               std::size_t first_block,
                                               std::size_t num_blocks) {
  return std::span<const std::int32_t>(sequence.tokens)
      .subspan(first_block * kKvBlockTokens, num_blocks * kKvBlockTokens);
}

// Whole blocks.
std::span<const std::int32_t> reusable_tokens(const Sequence& sequence) {
  const std::int64_t num_blocks = sequence.num_reusable_tokens() / kKvBlockTokens;
  return tokens_of_blocks(sequence, 0, static_cast<std::size_t>(num_blocks));
}

}  // namespace

SequenceBlocks::SequenceBlocks(std::int64_t num_blocks, bool keeps_prefixes)
    : blocks_(num_blocks), prefixes_(num_blocks), keeps_prefixes_(keeps_prefixes) {}

std::vector<std::int32_t> SequenceBlocks::find_prefix(const Sequence& sequence) const {
  return prefixes_.find(sequence.cache_salt, reusable_tokens(sequence));
}

std::int64_t SequenceBlocks::match_prefix(Sequence& sequence) const {
  prefixes_.update(sequence.prefix_match, sequence.cache_salt, reusable_tokens(sequence));
  return sequence.prefix_match.num_blocks * kKvBlockTokens;
}

void SequenceBlocks::take_prefix(Sequence& sequence) {
  sequence.block_table = find_prefix(sequence);
  prefixes_.hold(sequence.block_table);
  sequence.num_shared_blocks = sequence.block_table.size();
  sequence.num_cached_tokens =
      static_cast<std::int64_t>(sequence.num_shared_blocks) * kKvBlockTokens;
}

std::int64_t SequenceBlocks::num_prefix_tokens(const Sequence& sequence) const {
  return static_cast<std::int64_t>(find_prefix(sequence).size()) * kKvBlockTokens;
}

void SequenceBlocks::keep_prefix(Sequence& sequence) {
  if (!keeps_prefixes_) return;
  const auto num_whole = static_cast<std::size_t>(sequence.num_cached_tokens / kKvBlockTokens);
  for (std::size_t& i = sequence.num_shared_blocks; i < num_whole; ++i) {
    std::int32_t& block = sequence.block_table[i];
    const std::int32_t kept =
        prefixes_.insert(sequence.cache_salt, std::span(sequence.block_table).first(i),
                         tokens_of_blocks(sequence, i, 1), block);
    if (kept == block) continue;
    blocks_.give_back(block);
    block = kept;
  }
}

bool SequenceBlocks::grow(std::vector<std::int32_t>& block_table, std::int64_t num_tokens) {
  const std::int64_t missing =
      blocks_for(num_tokens) - static_cast<std::int64_t>(block_table.size());
  if (missing > num_free()) return false;
  while (blocks_.num_free() < missing) {
    evict_one();
    ++num_evicted_;
  }
  return blocks_.grow(block_table, num_tokens);
}

void SequenceBlocks::release(Sequence& sequence) {
  const std::span<const std::int32_t> table = sequence.block_table;
  prefixes_.release(table.first(sequence.num_shared_blocks));
  sequence.block_table.erase(
      sequence.block_table.begin(),
      sequence.block_table.begin() + static_cast<std::ptrdiff_t>(sequence.num_shared_blocks));
  sequence.num_shared_blocks = 0;
  sequence.num_cached_tokens = 0;
  blocks_.release(sequence.block_table);
}

void SequenceBlocks::forget_prefixes() {
  while (evict_one()) {
  }
}

bool SequenceBlocks::evict_one() {
  const std::optional<std::int32_t> block = prefixes_.evict();
  if (block) blocks_.give_back(*block);
  return block.has_value();
}

}  // namespace halfbyte
