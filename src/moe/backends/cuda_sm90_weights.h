// SPDX-License-Identifier: Apache-2.0
//
// The experts of one layer on the device, and their way there.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM90_WEIGHTS_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM90_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <mutex>

#include "device/buffer.h"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Room for one canonical expert, pinned on the host and on the device. All layers of a device
/// share one. Thread rule: any thread, which holds `mutex` while it uses the rest.
struct Sm90Staging {
  std::mutex mutex;
  device::PinnedBuffer host;
  device::DeviceBuffer device_memory;

  /// Grows to `bytes`. Requires the mutex.
  Status reserve(std::size_t bytes);
};

struct PreparedSm90Experts : PreparedExpertWeights {
  device::DeviceBuffer gate_up;   // sm90_gate_up(plan)
  device::DeviceBuffer down;      // sm90_down(plan)
  device::DeviceBuffer alpha;     // float [3, L]: by_projection()
  device::DeviceBuffer quantize;  // cuda::QuantizeScale [2]: of x, of h
  device::DeviceBuffer counters;  // int32, of the decode kernel; zero between launches
  // w4a8: float [L, rows] of gate_up and down, what the power of two of each row is undone with.
  device::DeviceBuffer gate_up_factor, down_factor;
  device::DeviceBuffer blocks_below;  // w4a8: uint64, PrepareFp8WeightsArgs::num_blocks_below
  std::shared_ptr<Sm90Staging> staging;

  const float* alpha_of(const ExpertPlan& plan, int projection) const {
    return alpha.as<float>() + projection * plan.shard.num_local_experts;
  }
  /// Of x (0), of h (1).
  const cuda::QuantizeScale* quantize_scale(int operand) const {
    return quantize.as<cuda::QuantizeScale>() + operand;
  }
};

Result<std::unique_ptr<PreparedSm90Experts>> allocate_sm90_experts(
    const ExpertPlan& plan, std::shared_ptr<Sm90Staging> staging);

/// Copies an expert to the device and into its place, and waits for it.
Status prepare_sm90_expert(const ExpertPlan& plan,
                           std::int64_t local_expert_idx,
                           const CanonicalExpert& expert,
                           PreparedSm90Experts& prepared,
                           const device::Stream& stream);

/// Replaces the alphas in place, and waits.
Status set_sm90_scales(const ExpertPlan& plan,
                       const ExpertScales& scales,
                       PreparedSm90Experts& prepared,
                       const device::Stream& stream);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM90_WEIGHTS_H_
