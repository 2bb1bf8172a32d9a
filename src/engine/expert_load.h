// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_EXPERT_LOAD_H_
#define HALFBYTE_ENGINE_EXPERT_LOAD_H_

#include <span>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte {

/// The load of each layer over all ranks, element r of `ranks` being rank r's. An expert that
/// several ranks hold parts of, and a token that the ranks of one data-parallel group share, count
/// once; bytes count on every rank.
std::vector<ExpertLoad> sum_expert_load(std::span<const std::vector<ExpertLoad>> ranks,
                                        int ep_size,
                                        int dp_size);

/// What the counters have grown by since they were `before`.
void subtract(const MoeCounters& before, MoeCounters& counters);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_EXPERT_LOAD_H_
