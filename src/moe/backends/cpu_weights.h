// SPDX-License-Identifier: Apache-2.0
//
// What the cpu backend keeps of its experts: panels of 16 rows (kernels/cpu/panel_layout.h), gate
// and up panels alternating so that the activation happens on what one task just computed.
#ifndef HALFBYTE_MOE_BACKENDS_CPU_WEIGHTS_H_
#define HALFBYTE_MOE_BACKENDS_CPU_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/host_buffer.h"
#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_layout.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Threads that the layers of one rank share; `busy` is held while a loop runs.
struct SharedPool {
  explicit SharedPool(int num_threads) : pool(num_threads) {}
  std::mutex busy;
  ThreadPool pool;
};

/// One expert, in the layer's memory, or in its own where its panels are larger than planned. That
/// memory is kept when the expert is replaced.
struct CpuExpert {
  cpu::PanelShape gate_up;  // of one half: [I, H]
  cpu::PanelShape down;     // [H, I]
  bool gated = true;
  std::span<std::uint8_t> panels;  // gate_up panels, then down panels
  HostBuffer own;                  // what `panels` looks at when it is not the layer's memory

  std::int64_t gate_up_bytes() const {
    return gate_up.num_panels() * gate_up.panel_bytes() * (gated ? 2 : 1);
  }
  std::int64_t total_bytes() const {
    return gate_up_bytes() + down.num_panels() * down.panel_bytes();
  }
  cpu::PanelView gate_panel(std::int64_t panel_idx) const {
    return view(gate_up, panel_idx * 2 * gate_up.panel_bytes());
  }
  cpu::PanelView up_panel(std::int64_t panel_idx) const {
    return view(gate_up, (gated ? panel_idx * 2 + 1 : panel_idx) * gate_up.panel_bytes());
  }
  cpu::PanelView down_panel(std::int64_t panel_idx) const {
    return view(down, gate_up_bytes() + panel_idx * down.panel_bytes());
  }

 private:
  cpu::PanelView view(const cpu::PanelShape& shape, std::int64_t offset) const {
    return {shape.format, panels.data() + offset, shape.cols, shape.scale_block_cols};
  }
};

struct PreparedCpuExperts : PreparedExpertWeights {
  std::vector<CpuExpert> experts;  // [L]
  HostBuffer panels;               // of all experts, one after the other: it can use huge pages
  ExpertScales scales;
  std::shared_ptr<SharedPool> pool;
};

/// The shapes of an expert in `plan`, known before any is read; FP8 with scale groups of 128
/// columns.
CpuExpert planned_cpu_expert(const ExpertPlan& plan);

/// Memory for the experts of `plan`. kOutOfMemory.
Status allocate_cpu_experts(const ExpertPlan& plan, PreparedCpuExperts& prepared);

/// Packs `expert` into `packed`, allocating only when it is larger than planned. kUnsupported,
/// kCorruptData and kInvalidArgument name the projection.
Status pack_cpu_expert(const CanonicalExpert& expert, CpuExpert& packed);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CPU_WEIGHTS_H_
