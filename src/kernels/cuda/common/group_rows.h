// SPDX-License-Identifier: Apache-2.0
//
// Routes of a step in (expert, token, slot) order (nvfp4-moe 9.2): a stable counting sort whose
// result stays on the device. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::cuda {

struct GroupRowsShape {
  std::int64_t num_tokens = 0;
  int top_k = 0;
  std::int64_t num_experts = 0;  // ids are below this
  std::int64_t first_expert = 0;
  int num_local_experts = 0;

  std::int64_t num_slots() const { return num_tokens * top_k; }
};

inline constexpr int kGroupRowsSlotsPerBlock = 1024;

struct GroupRowsConfig {
  int num_blocks = 0;
  int slots_per_block = 0;
  int shared_bytes = 0;
  std::size_t workspace_bytes = 0;
  bool operator==(const GroupRowsConfig&) const = default;
  std::string to_string() const;
};

/// Device pointers. S = num_tokens * top_k.
struct GroupRowsArgs {
  const std::int32_t* topk_idx = nullptr;          // [S]; -1 or outside [0, num_experts): no route
  const std::int32_t* num_valid_tokens = nullptr;  // [1]; later tokens have no routes. Null: all
  std::int64_t* expert_offset = nullptr;           // [num_local_experts + 1]
  std::int32_t* expert_count = nullptr;            // [num_local_experts]
  std::int32_t* route_row = nullptr;               // [S]: token of route r; -1 past the last route
  std::int32_t* slot_route = nullptr;              // [S]: route of a slot, or -1
  void* workspace = nullptr;                       // [workspace_bytes], content does not matter
};

/// Ok, or what is wanted and what came. Pure.
Status can_run(const GroupRowsShape& shape);
/// Pure and deterministic. Requires can_run(shape).ok().
GroupRowsConfig select_config(const GroupRowsShape& shape);
/// Enqueues and returns; one launch up to 8192 slots, else two. Nothing for zero tokens.
Status launch(const GroupRowsShape& shape,
              const GroupRowsConfig& config,
              const GroupRowsArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_H_
