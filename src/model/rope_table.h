// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding: frequencies of a config, and cos / sin of a batch's positions
// (checkpoints.md section 11).
#ifndef HALFBYTE_MODEL_ROPE_TABLE_H_
#define HALFBYTE_MODEL_ROPE_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/model_config.h"

namespace halfbyte {

/// What turns a position into rotations. Plain data.
struct RopeTable {
  std::vector<float> inv_freq;    // [num_pairs]
  float attention_factor = 1.0F;  // multiplies cos and sin: rotated parts only
  bool interleaved = false;       // pairs (2i, 2i + 1); else halves: (i, i + num_pairs)

  std::int64_t num_pairs() const { return static_cast<std::int64_t>(inv_freq.size()); }
};

/// YaRN's temperature m(k): 1 for factor <= 1, else 0.1 k ln(factor) + 1.
double yarn_mscale(double factor, double k);

/// The table of heads whose rotary part is `width` values wide before partial_rotary_factor.
RopeTable make_rope_table(const RopeConfig& config, std::int64_t width, bool interleaved);

/// cos and sin [positions.size(), num_pairs]; the angle is one fp32 product, as models are trained.
void fill_rope(const RopeTable& table,
               std::span<const std::int64_t> positions,
               float* cos,
               float* sin);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_ROPE_TABLE_H_
