// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <functional>

namespace halfbyte {

std::size_t PrefixCache::EdgeHash::operator()(const Edge& edge) const {
  std::uint64_t hash = std::hash<std::string>()(edge.salt);
  const auto mix = [&hash](std::int32_t value) {  // SplitMix64's finaliser
    hash += static_cast<std::uint32_t>(value) + 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
    hash ^= hash >> 31;
  };
  mix(edge.parent);
  std::ranges::for_each(edge.tokens, mix);
  return hash;
}

PrefixCache::PrefixCache(std::int64_t num_blocks) : nodes_(static_cast<std::size_t>(num_blocks)) {}

PrefixCache::Edge PrefixCache::edge_of(std::string_view salt,
                                       std::int32_t parent,
                                       std::span<const std::int32_t> tokens) {
  Edge edge;
  edge.parent = parent;
  if (parent == kNone) edge.salt = salt;
  std::ranges::copy(tokens, edge.tokens.begin());
  return edge;
}

// The block behind `parent` that has the first of `tokens`; none too when they fill no block.
std::int32_t PrefixCache::child_of(std::string_view salt,
                                   std::int32_t parent,
                                   std::span<const std::int32_t> tokens) const {
  if (tokens.size() < kKvBlockTokens) return kNone;
  const auto child = children_.find(edge_of(salt, parent, tokens.first(kKvBlockTokens)));
  return child == children_.end() ? kNone : child->second;
}

std::vector<std::int32_t> PrefixCache::find(std::string_view salt,
                                            std::span<const std::int32_t> tokens) const {
  std::vector<std::int32_t> path;
  std::int32_t block = child_of(salt, kNone, tokens);
  while (block != kNone) {
    path.push_back(block);
    block = child_of(salt, block, tokens.subspan(path.size() * kKvBlockTokens));
  }
  return path;
}

bool PrefixCache::is_there(const PrefixMatch& match) const {
  return match.num_blocks == 0 || node(match.last_block).inserted_at == match.inserted_at;
}

void PrefixCache::update(PrefixMatch& match,
                         std::string_view salt,
                         std::span<const std::int32_t> tokens) const {
  if (!is_there(match)) match = {};
  if (match.updated_at == num_inserted_ && match.num_tokens == tokens.size()) return;
  const std::size_t num_tokens = tokens.size();
  tokens = tokens.subspan(static_cast<std::size_t>(match.num_blocks * kKvBlockTokens));
  std::int32_t block = child_of(salt, match.last_block, tokens);
  while (block != kNone) {
    match = {match.num_blocks + 1, block, node(block).inserted_at, 0, 0};
    tokens = tokens.subspan(kKvBlockTokens);
    block = child_of(salt, block, tokens);
  }
  match.updated_at = num_inserted_;
  match.num_tokens = num_tokens;
}

void PrefixCache::hold(std::span<const std::int32_t> path) {
  for (const std::int32_t block : path) {
    Node& held = node(block);
    if (held.num_holders++ > 0) continue;
    --num_evictable_;
    leaves_.erase({held.released_at, block});
  }
}

std::int32_t PrefixCache::insert(std::string_view salt,
                                 std::span<const std::int32_t> path,
                                 std::span<const std::int32_t> tokens,
                                 std::int32_t block) {
  assert(tokens.size() == kKvBlockTokens);
  const std::int32_t parent = path.empty() ? kNone : path.back();
  const auto [child, is_new] = children_.try_emplace(edge_of(salt, parent, tokens), block);
  if (!is_new) {
    hold(std::span(&child->second, 1));
    return child->second;
  }
  assert(node(block).edge == nullptr);  // else the block stands for other tokens as well
  node(block) = {.edge = &child->first, .inserted_at = ++num_inserted_, .num_holders = 1};
  if (parent != kNone) ++node(parent).num_children;
  return block;
}

void PrefixCache::release(std::span<const std::int32_t> path) {
  ++clock_;
  for (const std::int32_t block : path) {
    Node& released = node(block);
    assert(released.num_holders > 0);
    if (--released.num_holders > 0) continue;
    ++num_evictable_;
    released.released_at = clock_;
    note_leaf(block);
  }
}

void PrefixCache::note_leaf(std::int32_t block) {
  const Node& leaf = node(block);
  if (leaf.num_children == 0 && leaf.num_holders == 0) leaves_.emplace(leaf.released_at, block);
}

std::optional<std::int32_t> PrefixCache::evict() {
  if (leaves_.empty()) return std::nullopt;
  const std::int32_t block = leaves_.begin()->second;
  leaves_.erase(leaves_.begin());
  const std::int32_t parent = node(block).edge->parent;
  children_.erase(children_.find(*node(block).edge));
  node(block) = {};
  --num_evictable_;
  if (parent != kNone) {
    --node(parent).num_children;
    note_leaf(parent);
  }
  return block;
}

}  // namespace halfbyte
