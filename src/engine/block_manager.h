// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_BLOCK_MANAGER_H_
#define HALFBYTE_ENGINE_BLOCK_MANAGER_H_

#include <cstdint>
#include <vector>

namespace halfbyte {

/// The free blocks of one rank's KV cache. A block holds kKvBlockTokens positions of one
/// sequence. Thread rule: the engine thread only.
class BlockManager {
 public:
  explicit BlockManager(std::int64_t num_blocks);

  std::int64_t num_blocks() const { return num_blocks_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }

  /// Extends `block_table` so that it holds `num_tokens` positions. False, and nothing changes,
  /// when too few blocks are free.
  bool grow(std::vector<std::int32_t>& block_table, std::int64_t num_tokens);
  /// Gives every block of the table back and empties it.
  void release(std::vector<std::int32_t>& block_table);
  void give_back(std::int32_t block);

 private:
  std::int64_t num_blocks_;
  std::vector<std::int32_t> free_;  // taken from the back
};

/// Blocks that `num_tokens` positions need.
std::int64_t blocks_for(std::int64_t num_tokens);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_BLOCK_MANAGER_H_
