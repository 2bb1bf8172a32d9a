// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_PLAN_H_
#define HALFBYTE_MOE_PLAN_H_

#include <string>

#include "moe/dispatcher.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Everything about one layer on one rank that depends on sizes; made once, before anything is
/// loaded.
struct MoePlan {
  std::string transport;
  ExpertPlan experts;
  DispatchPlan dispatch;
  std::size_t dispatch_workspace_offset = 0;
  std::size_t expert_workspace_offset = 0;
  std::size_t output_offset = 0;  // rows handed from the experts to combine
  WorkspaceLayout workspace;      // shared by all layers of a process, sized by the largest
};

/// Chooses transport, backend and dispatcher (registry) and plans both. Pure; the same on every
/// machine with these limits. `num_ranks` and `rank` describe the transport that will be used.
Result<MoePlan> make_moe_plan(const MoeSpec& spec,
                              const MoeOptions& options,
                              const DeviceLimits& limits,
                              int num_ranks,
                              int rank,
                              NoticeSink& notices);

std::string describe(const MoePlan& plan);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_PLAN_H_
