// SPDX-License-Identifier: Apache-2.0
#include "engine/block_manager.h"

#include <cassert>

#include "base/checked.h"
#include "model/model.h"

namespace halfbyte {

std::int64_t blocks_for(std::int64_t num_tokens) {
  return ceil_div(num_tokens, kKvBlockTokens);
}

BlockManager::BlockManager(std::int64_t num_blocks) : num_blocks_(num_blocks) {
  free_.reserve(static_cast<std::size_t>(num_blocks));
  // Low numbers are handed out first, so a short run touches little of the cache's memory.
  for (std::int64_t block = num_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<std::int32_t>(block));
  }
}

bool BlockManager::grow(std::vector<std::int32_t>& block_table, std::int64_t num_tokens) {
  const auto held = static_cast<std::int64_t>(block_table.size());
  const std::int64_t missing = blocks_for(num_tokens) - held;
  if (missing > num_free()) return false;
  for (std::int64_t i = 0; i < missing; ++i) {
    block_table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void BlockManager::release(std::vector<std::int32_t>& block_table) {
  for (auto block = block_table.rbegin(); block != block_table.rend(); ++block) {
    give_back(*block);
  }
  block_table.clear();
}

void BlockManager::give_back(std::int32_t block) {
  free_.push_back(block);
  assert(num_free() <= num_blocks_);  // else a block was given back twice
}

}  // namespace halfbyte
