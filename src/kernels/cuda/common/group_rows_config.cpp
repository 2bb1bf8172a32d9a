// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "base/checked.h"
#include "kernels/cuda/common/group_rows.h"

namespace halfbyte::cuda {
namespace {

constexpr int kMaxLocalExperts = 512;  // one thread an expert
constexpr int kNumWarps = 16;
// Blocks that tell each other their counts; more need a launch before.
constexpr int kMaxClusterBlocks = 8;

}  // namespace

std::string GroupRowsConfig::to_string() const {
  return fmt::format("group_rows: {} blocks of {} slots, {} B shared, {} B workspace", num_blocks,
                     slots_per_block, shared_bytes, workspace_bytes);
}

Status can_run(const GroupRowsShape& shape) {
  if (shape.num_local_experts < 0 || shape.num_local_experts > kMaxLocalExperts) {
    return {StatusCode::kUnsupported,
            fmt::format("group_rows: {} experts on one rank, want 0 to {}", shape.num_local_experts,
                        kMaxLocalExperts)};
  }
  if (shape.num_tokens < 0 || shape.top_k < 1 ||
      shape.num_slots() > std::numeric_limits<std::int32_t>::max()) {
    return {StatusCode::kUnsupported,
            fmt::format("group_rows: {} tokens of {} slots, want fewer than 2^31 slots",
                        shape.num_tokens, shape.top_k)};
  }
  return {};
}

GroupRowsConfig select_config(const GroupRowsShape& shape) {
  GroupRowsConfig config;
  config.slots_per_block = kGroupRowsSlotsPerBlock;
  config.num_blocks = static_cast<int>(ceil_div(shape.num_slots(), kGroupRowsSlotsPerBlock));
  config.shared_bytes = (kNumWarps + 2) * shape.num_local_experts * 4;
  if (config.num_blocks > kMaxClusterBlocks) {
    config.workspace_bytes = static_cast<std::size_t>(config.num_blocks) *
                             static_cast<std::size_t>(shape.num_local_experts) * 4;
  }
  return config;
}

}  // namespace halfbyte::cuda
