// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_PREFIX_CACHE_H_
#define HALFBYTE_ENGINE_PREFIX_CACHE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/model.h"

namespace halfbyte {

/// How far some tokens were found in a PrefixCache. Holds nothing: it may have been evicted since.
struct PrefixMatch {
  std::int64_t num_blocks = 0;
  std::int32_t last_block = -1;
  std::int64_t inserted_at = 0;  // of last_block: it may have come back for other tokens
  std::int64_t updated_at = 0;   // blocks inserted until then
  std::size_t num_tokens = 0;    // that it was among: no more of them and no more blocks, no change
};

/// A radix tree over whole cache blocks of one rank: which block holds K and V of which tokens
/// after which others. A node is a block, and its path a sequence's first tokens; a first block
/// also has a salt. Tokens are compared, not hashes of them.
///
/// Sequences share nodes; each holds its whole path, first block first. What none holds can be
/// evicted: leaves, and of them the one that was released the longest ago. Thread rule: the engine
/// thread.
class PrefixCache {
 public:
  /// Of a rank with `num_blocks` cache blocks.
  explicit PrefixCache(std::int64_t num_blocks);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest path that starts `tokens`, whole blocks only; it is not held.
  std::vector<std::int32_t> find(std::string_view salt, std::span<const std::int32_t> tokens) const;
  /// Makes `match`, an earlier one of these tokens and this salt or an empty one, that of now.
  /// Looks only behind its last block as long as that is there: its parents are, too.
  void update(PrefixMatch& match,
              std::string_view salt,
              std::span<const std::int32_t> tokens) const;
  /// Adds a holder to each block of a path that find() gave.
  void hold(std::span<const std::int32_t> path);
  /// Puts `block`, which has K and V of kKvBlockTokens `tokens`, behind `path`, which the caller
  /// holds, and holds it. Returns the block that is there now: another one, if one was already.
  std::int32_t insert(std::string_view salt,
                      std::span<const std::int32_t> path,
                      std::span<const std::int32_t> tokens,
                      std::int32_t block);
  /// Takes a holder from each block of a path.
  void release(std::span<const std::int32_t> path);
  /// Takes one block out that nobody holds; none when all are held.
  std::optional<std::int32_t> evict();

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(children_.size()); }
  /// Of them, those that nobody holds.
  std::int64_t num_evictable() const { return num_evictable_; }

 private:
  struct Edge {
    std::int32_t parent = kNone;
    std::string salt;  // of a first block
    std::array<std::int32_t, kKvBlockTokens> tokens = {};
    bool operator==(const Edge&) const = default;
  };
  struct EdgeHash {
    std::size_t operator()(const Edge& edge) const;
  };
  struct Node {
    const Edge* edge = nullptr;    // the key in children_
    std::int64_t inserted_at = 0;  // the how many-th it was; 0: not in the tree
    std::int32_t num_children = 0;
    std::int32_t num_holders = 0;
    std::int64_t released_at = 0;  // on clock_
  };
  static constexpr std::int32_t kNone = -1;

  static Edge edge_of(std::string_view salt,
                      std::int32_t parent,
                      std::span<const std::int32_t> tokens);
  std::int32_t child_of(std::string_view salt,
                        std::int32_t parent,
                        std::span<const std::int32_t> tokens) const;
  bool is_there(const PrefixMatch& match) const;
  Node& node(std::int32_t block) { return nodes_[static_cast<std::size_t>(block)]; }
  const Node& node(std::int32_t block) const { return nodes_[static_cast<std::size_t>(block)]; }
  void note_leaf(std::int32_t block);

  std::vector<Node> nodes_;  // of every block of the rank, in the tree or not
  std::unordered_map<Edge, std::int32_t, EdgeHash> children_;  // edge to block
  std::set<std::pair<std::int64_t, std::int32_t>> leaves_;     // evictable: (released_at, block)
  std::int64_t num_evictable_ = 0;
  std::int64_t num_inserted_ = 0;  // since start
  std::int64_t clock_ = 0;         // calls of release()
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_PREFIX_CACHE_H_
