// SPDX-License-Identifier: Apache-2.0
//
// Which tactics a layer's steps take: recalled or measured once its weights are there.
#include <fmt/format.h>

#include "device/nvml.h"
#include "device/properties.h"
#include "moe/layer_impl.h"
#include "moe/tuning_memory.h"

namespace halfbyte {
namespace {

TuningMemory& process_memory() {
  static TuningMemory memory;
  return memory;
}

}  // namespace

// Weights that are loaded again keep their tactics: graphs of the layer's steps may be captured.
Status MoeLayer::Impl::tune() {
  if (!plan.experts.autotune || !plan.experts.tactics.empty()) return {};
  const std::vector<TacticList> lists = backend->list_tactics(plan.experts);
  HALFBYTE_ASSIGN_OR_RETURN(const device::Properties properties,
                            device::read_properties(device().index));
  const auto measure = [&]() -> Result<TuningTable> {
    HALFBYTE_ASSIGN_OR_RETURN(const auto timer,
                              backend->make_tactic_timer(plan.experts, *prepared, seam_stream()));
    return measure_tactics(lists, *timer);
  };
  auto table = process_memory().recall_or_measure(
      tuning_key(plan, properties.name, device::driver_version(), lists), cache_directory, lists,
      measure, *notices);
  if (!table.ok()) return without_tuning(table.take_status());
  ExpertPlan request = plan.experts;
  request.tactics = std::move(table).value();
  HALFBYTE_ASSIGN_OR_RETURN(plan.experts, backend->plan(std::move(request)));
  return {};
}

// Memory that is short for a measurement is no reason not to run.
Status MoeLayer::Impl::without_tuning(Status status) {
  if (status.code() != StatusCode::kOutOfMemory) return status;
  notices->notice("no tuning", fmt::format("no tactics were measured, the backend's own choices "
                                           "run: {}",
                                           status.message()));
  return {};
}

}  // namespace halfbyte
