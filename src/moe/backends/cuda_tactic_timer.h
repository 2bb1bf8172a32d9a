// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_TACTIC_TIMER_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_TACTIC_TIMER_H_

#include <memory>

#include "moe/expert_backend.h"

namespace halfbyte {

/// Times steps of `backend` on the device of the plan, which is current: several in a graph, each
/// with other experts. Of the layer's own memory only the weights are read, which `stream` may have
/// yet to bring: tokens, routing, workspace and output are the timer's. Before each timing three
/// times the level 2 cache are read. Backend, plan and weights outlive the timer.
/// @return kOutOfMemory: no room for a second workspace and the tokens of a full step.
Result<std::unique_ptr<TacticTimer>> make_cuda_tactic_timer(ExpertBackend& backend,
                                                            const ExpertPlan& plan,
                                                            const PreparedExpertWeights& prepared,
                                                            device::Stream& stream);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_TACTIC_TIMER_H_
