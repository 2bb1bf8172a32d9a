// SPDX-License-Identifier: Apache-2.0
//
// The experts of one layer on the device, and their way there: packed on the host, copied once.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM100_WEIGHTS_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM100_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Pinned room for one packed expert. All layers of a device share one. Thread rule: any thread,
/// which holds `mutex` while it uses the rest.
struct Sm100Staging {
  std::mutex mutex;
  device::PinnedBuffer host;
};

struct PreparedSm100Experts : PreparedExpertWeights {
  device::DeviceBuffer gate_up_codes, gate_up_scale;  // sm100_gate_up(plan)
  device::DeviceBuffer down_codes, down_scale;        // sm100_down(plan)
  device::DeviceBuffer scalars;                       // float, sm100_scalars()
  std::shared_ptr<Sm100Staging> staging;

  /// [L] of gate (0), up (1) or down (2).
  const float* of_projection(const ExpertPlan& plan, int projection) const {
    return scalars.as<float>() + projection * plan.shard.num_local_experts;
  }
  /// Decode-side scales of x (0) and of h (1).
  const float* activation_scale(const ExpertPlan& plan, int operand) const {
    return scalars.as<float>() + 3 * plan.shard.num_local_experts + operand;
  }
};

/// What the kernels read of the scales: gate, up, down [L] each - alphas in w4a4, global scales in
/// w4a4_dynamic, where each row has its own alpha - then s1 and s2.
std::vector<float> sm100_scalars(const ExpertPlan& plan, const ExpertScales& scales);

/// The four parts of a packed expert, one after the other in `bytes`.
struct Sm100Packed {
  std::span<std::uint8_t> gate_up_codes, gate_up_scale, down_codes, down_scale;
};
std::size_t sm100_packed_bytes(const ExpertPlan& plan);
Sm100Packed pack_sm100_expert(const ExpertPlan& plan,
                              const CanonicalExpert& expert,
                              std::span<std::uint8_t> bytes);

Result<std::unique_ptr<PreparedSm100Experts>> allocate_sm100_experts(
    const ExpertPlan& plan, std::shared_ptr<Sm100Staging> staging);

/// Packs an expert, copies it to its place on the device, and waits for it.
Status prepare_sm100_expert(const ExpertPlan& plan,
                            std::int64_t local_expert_idx,
                            const CanonicalExpert& expert,
                            PreparedSm100Experts& prepared,
                            const device::Stream& stream);

/// Replaces the scalars in place, and waits.
Status set_sm100_scales(const ExpertPlan& plan,
                        const ExpertScales& scales,
                        PreparedSm100Experts& prepared,
                        const device::Stream& stream);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM100_WEIGHTS_H_
