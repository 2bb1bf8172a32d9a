// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/combine.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace halfbyte::reference {
namespace {

using Nodes = std::array<float*, kNumCombineGroups>;

void add_row(const float* src, std::int64_t size, float* dst) {
  for (std::int64_t i = 0; i < size; ++i)
    dst[i] += src[i];
}

/// Joins neighbours, then pairs of pairs, until one node is left; an absent side is skipped, not
/// added as zero. Returns null when all are absent.
float* join_tree(Nodes nodes, std::size_t num_nodes, std::int64_t hidden_size) {
  for (; num_nodes > 1; num_nodes /= 2) {
    for (std::size_t i = 0; i < num_nodes / 2; ++i) {
      float* left = nodes[2 * i];
      float* right = nodes[2 * i + 1];
      if (left != nullptr && right != nullptr) add_row(right, hidden_size, left);
      nodes[i] = left != nullptr ? left : right;
    }
  }
  return nodes[0];
}

}  // namespace

void add_weighted(float weight, const float* row, std::int64_t count, bool first, float* acc) {
  for (std::int64_t i = 0; i < count; ++i)
    acc[i] = first ? weight * row[i] : std::fma(weight, row[i], acc[i]);
}

std::int64_t expert_owner(std::int64_t expert_idx,
                          std::int64_t num_experts,
                          std::int64_t num_ranks) {
  const std::int64_t base = num_experts / num_ranks;
  const std::int64_t num_larger = num_experts % num_ranks;
  const std::int64_t in_larger = num_larger * (base + 1);
  if (expert_idx < in_larger) return expert_idx / (base + 1);
  return num_larger + (expert_idx - in_larger) / base;
}

std::int64_t first_expert_of(std::int64_t rank, std::int64_t num_experts, std::int64_t num_ranks) {
  return rank * (num_experts / num_ranks) + std::min(rank, num_experts % num_ranks);
}

bool combine_token(std::span<const std::int32_t> topk_idx,
                   std::span<const float> topk_weights,
                   std::span<const float* const> rows,
                   std::int64_t num_experts,
                   std::int64_t hidden_size,
                   float* scratch,
                   float* y,
                   AddWeighted add) {
  Nodes leaves = {};
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    if (rows[slot] == nullptr) continue;
    const std::int64_t group = expert_owner(topk_idx[slot], num_experts, kNumCombineGroups);
    float*& leaf = leaves[static_cast<std::size_t>(group)];
    const bool first = leaf == nullptr;
    leaf = scratch + group * hidden_size;
    add(topk_weights[slot], rows[slot], hidden_size, first, leaf);
  }
  const float* root = join_tree(leaves, leaves.size(), hidden_size);
  if (root == nullptr) return false;
  std::copy_n(root, hidden_size, y);
  return true;
}

bool join_partials(std::span<const float* const> partials,
                   std::int64_t hidden_size,
                   float* scratch,
                   float* y) {
  Nodes nodes = {};
  for (std::size_t i = 0; i < partials.size(); ++i) {
    if (partials[i] == nullptr) continue;
    nodes[i] = scratch + static_cast<std::int64_t>(i) * hidden_size;
    std::copy_n(partials[i], hidden_size, nodes[i]);
  }
  const float* root = join_tree(nodes, partials.size(), hidden_size);
  if (root == nullptr) return false;
  std::copy_n(root, hidden_size, y);
  return true;
}

}  // namespace halfbyte::reference
