// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_LAYER_IMPL_H_
#define HALFBYTE_MOE_LAYER_IMPL_H_

#include <atomic>
#include <memory>
#include <vector>

#include "base/log.h"
#include "moe/dispatcher.h"
#include "moe/expert_backend.h"
#include "moe/expert_check.h"
#include "moe/plan.h"
#include "moe/workspace.h"

namespace halfbyte {

struct MoeLayer::Impl {
  MoeSpec spec;
  MoePlan plan;
  Transport* transport = nullptr;
  std::shared_ptr<ExpertBackend> backend;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<PreparedExpertWeights> prepared;
  std::shared_ptr<MoeWorkspace> workspace;
  std::shared_ptr<NoticeSink> notices;

  // Loading. One byte per local expert, so that threads may set different ones.
  std::vector<std::uint8_t> loaded;
  ExpertScales scales;
  std::atomic<bool> ready = false;  // false until finish_loading, and from a reload to the next

  // Running.
  bool in_flight = false;
  DispatchedTokens tokens;  // of the step in flight
  std::int64_t num_tokens = 0;
  Status failure;  // of a step that stopped halfway; every later step returns it
  MoeCounters counters;
  std::vector<std::int64_t> bucket_offset;  // [L + 1], for run_bucketed
  std::vector<std::int32_t> bucket_count;   // [L]

  Workspace dispatch_workspace() const {
    return workspace->part(plan.dispatch_workspace_offset, plan.dispatch.workspace.total_bytes());
  }
  Workspace expert_workspace() const {
    return workspace->part(plan.expert_workspace_offset, plan.experts.workspace.total_bytes());
  }
  ExpertOutput expert_output() const {
    return {MatrixView(workspace->view().data + plan.output_offset, plan.experts.row_dtype,
                       plan.experts.max_routes, spec.hidden_size)};
  }

  // layer.cpp
  static Result<std::unique_ptr<Impl>> make(const MoeSpec& spec,
                                            const MoeOptions& options,
                                            const ExpertInputScales& input_scales,
                                            Transport* transport);
  // layer_load.cpp
  Status load_arrays(const ExpertArrays& arrays);
  Status resolve_input_scales(const ExpertInputScales& input_scales);
  Status load_checked(std::int64_t expert_idx, const CanonicalExpert& expert);
  // layer_run.cpp
  Status check_can_step() const;
  Status check_input(ConstMatrixView x,
                     const Routing& routing,
                     std::span<const std::int64_t> tokens_per_rank) const;
  Status check_output(std::int64_t rows, const SharedExpert& shared, const MatrixView& y) const;
  Status run_experts(const DispatchedTokens& received);
  void count(const DispatchedTokens& received, std::span<const std::int64_t> tokens_per_rank);
  Status run_bucket(ConstMatrixView x, std::int64_t local_expert_idx, MatrixView y);
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_LAYER_IMPL_H_
