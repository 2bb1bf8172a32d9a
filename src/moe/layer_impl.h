// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_LAYER_IMPL_H_
#define HALFBYTE_MOE_LAYER_IMPL_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "device/current_device.h"
#include "device/stream.h"
#include "moe/dispatcher.h"
#include "moe/expert_backend.h"
#include "moe/expert_check.h"
#include "moe/layer_counters.h"
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
  std::string cache_directory;                              // of measured tactics; empty: none
  device::Stream stream = device::Stream::borrow(nullptr);  // of a layer on a CUDA device

  // Loading. One byte per local expert, so that threads may set different ones.
  std::vector<std::uint8_t> loaded;
  ExpertScales scales;
  std::atomic<bool> ready = false;  // false until finish_loading, and from a reload to the next

  // Running.
  bool in_flight = false;
  bool has_run = false;     // a step has gone through since creation
  DispatchedTokens tokens;  // of the step in flight
  std::int64_t num_tokens = 0;
  std::int64_t num_valid = 0;  // of the step in flight; a device knows its own
  Status failure;              // of a step that stopped halfway; every later step returns it
  std::unique_ptr<LayerCounters> counters;
  std::vector<std::int64_t> bucket_offset;  // [L + 1], for run_bucketed
  std::vector<std::int32_t> bucket_count;   // [L]

  const Device& device() const { return plan.dispatch.device; }
  bool on_host() const { return device().kind == DeviceKind::kHost; }
  // What the seams get: nothing on the host.
  device::Stream* seam_stream() { return on_host() ? nullptr : &stream; }

  Workspace dispatch_workspace() const {
    return workspace->part(plan.dispatch_workspace_offset, plan.dispatch.workspace.total_bytes());
  }
  Workspace expert_workspace() const {
    return workspace->part(plan.expert_workspace_offset, plan.experts.workspace.total_bytes());
  }
  ExpertOutput expert_output() const {
    return {MatrixView(workspace->view().data + plan.output_offset, plan.experts.row_dtype,
                       plan.experts.max_routes, spec.hidden_size, device())};
  }

  // layer.cpp
  static Result<std::unique_ptr<Impl>> make(const MoeSpec& spec,
                                            const MoeOptions& options,
                                            const ExpertInputScales& input_scales,
                                            Transport* transport);
  Status allocate();
  // layer_device.cpp: the layer on a CUDA device; on the host these do nothing
  Status refuse_capture(std::string_view call) const;
  Status warm_up_device();
  Status warm_up_router();
  Status route_on_device(ConstMatrixView logits,
                         std::span<const float> bias,
                         std::span<std::int32_t> topk_idx,
                         std::span<float> topk_weights);
  Status check_first_step() const;
  // layer_tuning.cpp
  Status tune();
  Status without_tuning(Status status);
  // Calls `function` with the layer's device as the thread's current one.
  template <typename Function>
  Status on_device(Function&& function) {
    if (on_host()) return function();
    const device::CurrentDevice current(device().index);
    HALFBYTE_RETURN_IF_ERROR(current.status());
    return function();
  }
  // layer_load.cpp
  Status load_arrays(const ExpertArrays& arrays);
  Status resolve_input_scales(const ExpertInputScales& input_scales);
  Status load_checked(std::int64_t expert_idx, const CanonicalExpert& expert);
  Status check_all_loaded() const;
  Status finish_loading();
  // layer_run.cpp
  Status check_can_step() const;
  Status check_input(ConstMatrixView x,
                     const Routing& routing,
                     std::span<const std::int64_t> tokens_per_rank) const;
  Status check_output(std::int64_t rows, const SharedExpert& shared, const MatrixView& y) const;
  Routing without_padding(const Routing& routing, std::int64_t rows);
  Status start(ConstMatrixView x,
               const Routing& routing,
               std::span<const std::int64_t> tokens_per_rank);
  Status finish(const SharedExpert& shared, const MatrixView& y);
  Status run_experts(const DispatchedTokens& received);
  void count(const DispatchedTokens& received, std::span<const std::int64_t> tokens_per_rank);
  Status run_bucket(ConstMatrixView x, std::int64_t local_expert_idx, MatrixView y);
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_LAYER_IMPL_H_
