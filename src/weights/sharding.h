// SPDX-License-Identifier: Apache-2.0
//
// Which part of the experts a rank holds, and cutting it out (nvfp4-moe 1.6, 9.1).
#ifndef HALFBYTE_WEIGHTS_SHARDING_H_
#define HALFBYTE_WEIGHTS_SHARDING_H_

#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// Experts [first_expert, first_expert + num_local_experts), and of each the intermediate columns
/// [intermediate_begin, intermediate_begin + intermediate_size).
struct ExpertShard {
  std::int64_t first_expert = 0;
  std::int64_t num_local_experts = 0;
  std::int64_t intermediate_begin = 0;
  std::int64_t intermediate_size = 0;
};

/// The shard of tp rank `tp_rank`: ep_rank = tp_rank / (tp / ep), cut inside the expert on borders
/// of 16. kInvalidArgument: tp not a multiple of ep, I or H not a multiple of 16, fewer groups of
/// 16 than ranks.
Result<ExpertShard> shard_experts(const MoeSpec& spec, int tp_size, int ep_size, int tp_rank);

/// An expert's part, with the bytes that had to be copied (columns of down).
struct ShardedExpert {
  CanonicalExpert view;
  std::vector<std::uint8_t> down_codes;
  std::vector<std::uint8_t> down_block_scale;
  std::vector<float> gate_scale, up_scale, down_scale;  // fp8 scales that had to be cut
};

/// Cuts `shard` out of a whole expert; no copy when the shard is the whole expert.
Result<ShardedExpert> cut_expert(const CanonicalExpert& expert, const ExpertShard& shard);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_SHARDING_H_
