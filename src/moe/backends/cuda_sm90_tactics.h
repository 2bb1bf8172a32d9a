// SPDX-License-Identifier: Apache-2.0
//
// The ways to run a step of cuda_sm90, by name.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM90_TACTICS_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM90_TACTICS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/sm90/moe_decode_nvfp4.h"

namespace halfbyte {

/// A kernel and its tile: "decode 128x8", weight rows by tokens.
struct Sm90Tactic {
  bool decode = true;  // else the grouped GEMMs
  int rows = 0;
  int tokens = 0;

  std::string to_string() const;
  /// Of decode.
  const sm90::MoeDecodeTile& tile() const;
  bool operator==(const Sm90Tactic&) const = default;
};

Sm90Tactic sm90_decode_tactic(const sm90::MoeDecodeTile& tile);
Sm90Tactic sm90_prefill_tactic(int tile_tokens);

/// Every tile of decode, where `decode` says that the mode has it, and the given ones of prefill.
std::vector<Sm90Tactic> all_sm90_tactics(bool decode, std::span<const int> tile_tokens);
/// The tactic of this name; nothing when no tile is called so. Allocates nothing.
std::optional<Sm90Tactic> find_sm90_tactic(std::string_view name);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM90_TACTICS_H_
