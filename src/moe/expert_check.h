// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_EXPERT_CHECK_H_
#define HALFBYTE_MOE_EXPERT_CHECK_H_

#include <array>
#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// An expert that passed every check; `view` may point into `cleared`.
struct CheckedExpert {
  CanonicalExpert view;
  // Block scales of gate, up, down of which NaN bytes over all-zero blocks became 0x00.
  std::array<std::vector<std::uint8_t>, 3> cleared;
};

/// Checks one whole expert against the spec (nvfp4-moe 2.2): shapes, formats, global scales, every
/// block scale.
/// @return kInvalidArgument: a shape, format or span that differs from the spec's; kCorruptData: a
///         scale, naming projection, row and group; up to 16 findings, then a count.
Result<CheckedExpert> check_expert(const MoeSpec& spec, const CanonicalExpert& expert);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_EXPERT_CHECK_H_
