// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_PLAN_H_
#define HALFBYTE_MOE_PLAN_H_

#include <string>
#include <vector>

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
  std::size_t valid_idx_offset = 0;  // host: ids without those of padding rows
  std::size_t output_offset = 0;     // rows handed from the experts to combine
  WorkspaceLayout workspace;         // shared by all layers of a process, sized by the largest
  std::vector<std::string> log;      // why each skipped entry was skipped, then the chosen one
};

/// Chooses transport, backend and dispatcher (registry) and plans both for the device of `limits`,
/// present or not. Pure; the same on every machine with these limits. `num_ranks` and `rank`
/// describe the transport that will be used.
Result<MoePlan> make_moe_plan(const MoeSpec& spec,
                              const MoeOptions& options,
                              const DeviceLimits& limits,
                              int num_ranks,
                              int rank,
                              NoticeSink& notices);

/// The whole plan as lines of "name: value", and the workspace map.
std::string describe(const MoePlan& plan);

/// "as given", "nvfp4", "nvfp4 + row scale".
std::string_view payload_name(Payload payload);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_PLAN_H_
