// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm100_weights.h"

#include <array>
#include <utility>

#include "kernels/cuda/sm100/prepare_weights.h"
#include "moe/backends/cuda_backend.h"
#include "moe/backends/cuda_sm100_plan.h"

namespace halfbyte {
namespace {

using device::DeviceBuffer;

// Puts one part of an expert in its place.
Status upload_part(std::span<const std::uint8_t> part,
                   std::int64_t local_expert_idx,
                   const DeviceBuffer& dst,
                   const device::Stream& stream) {
  return dst.upload(std::as_bytes(part), static_cast<std::size_t>(local_expert_idx) * part.size(),
                    stream);
}

}  // namespace

std::vector<float> sm100_scalars(const ExpertPlan& plan, const ExpertScales& scales) {
  std::vector<float> scalars = by_projection(plan, scales);
  scalars.push_back(scales.s1);
  scalars.push_back(scales.s2);
  return scalars;
}

std::size_t sm100_packed_bytes(const ExpertPlan& plan) {
  const WeightLayout gate_up = sm100_gate_up(plan);
  const WeightLayout down = sm100_down(plan);
  return static_cast<std::size_t>(gate_up.code_bytes_per_expert() +
                                  gate_up.scale_bytes_per_expert() + down.code_bytes_per_expert() +
                                  down.scale_bytes_per_expert());
}

Sm100Packed pack_sm100_expert(const ExpertPlan& plan,
                              const CanonicalExpert& expert,
                              std::span<std::uint8_t> bytes) {
  const WeightLayout gate_up = sm100_gate_up(plan);
  const WeightLayout down = sm100_down(plan);
  const auto take = [&bytes](std::int64_t count) {
    const auto part = bytes.first(static_cast<std::size_t>(count));
    bytes = bytes.subspan(part.size());
    return part;
  };
  Sm100Packed packed;
  packed.gate_up_codes = take(gate_up.code_bytes_per_expert());
  packed.gate_up_scale = take(gate_up.scale_bytes_per_expert());
  packed.down_codes = take(down.code_bytes_per_expert());
  packed.down_scale = take(down.scale_bytes_per_expert());
  const std::array halves = {expert.gate, expert.up};
  sm100::pack_expert(gate_up,
                     std::span(halves).last(static_cast<std::size_t>(gate_up.shape.num_halves)),
                     packed.gate_up_codes, packed.gate_up_scale);
  sm100::pack_expert(down, {&expert.down, 1}, packed.down_codes, packed.down_scale);
  return packed;
}

Result<std::unique_ptr<PreparedSm100Experts>> allocate_sm100_experts(
    const ExpertPlan& plan, std::shared_ptr<Sm100Staging> staging) {
  auto prepared = std::make_unique<PreparedSm100Experts>();
  const WeightLayout gate_up = sm100_gate_up(plan);
  const WeightLayout down = sm100_down(plan);
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->gate_up_codes, gate_up.code_bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->gate_up_scale, gate_up.scale_bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->down_codes, down.code_bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->down_scale, down.scale_bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->scalars, (3 * plan.shard.num_local_experts + 2) * 4));
  prepared->staging = std::move(staging);
  return prepared;
}

Status prepare_sm100_expert(const ExpertPlan& plan,
                            std::int64_t local_expert_idx,
                            const CanonicalExpert& expert,
                            PreparedSm100Experts& prepared,
                            const device::Stream& stream) {
  Sm100Staging& staging = *prepared.staging;
  const std::scoped_lock lock(staging.mutex);
  const std::size_t bytes = sm100_packed_bytes(plan);
  if (staging.host.size() < bytes) {
    HALFBYTE_ASSIGN_OR_RETURN(staging.host, device::PinnedBuffer::allocate(bytes));
  }
  const Sm100Packed packed = pack_sm100_expert(
      plan, expert, {reinterpret_cast<std::uint8_t*>(staging.host.data()), bytes});
  HALFBYTE_RETURN_IF_ERROR(
      upload_part(packed.gate_up_codes, local_expert_idx, prepared.gate_up_codes, stream));
  HALFBYTE_RETURN_IF_ERROR(
      upload_part(packed.gate_up_scale, local_expert_idx, prepared.gate_up_scale, stream));
  HALFBYTE_RETURN_IF_ERROR(
      upload_part(packed.down_codes, local_expert_idx, prepared.down_codes, stream));
  HALFBYTE_RETURN_IF_ERROR(
      upload_part(packed.down_scale, local_expert_idx, prepared.down_scale, stream));
  return stream.synchronize();
}

Status set_sm100_scales(const ExpertPlan& plan,
                        const ExpertScales& scales,
                        PreparedSm100Experts& prepared,
                        const device::Stream& stream) {
  const std::vector<float> scalars = sm100_scalars(plan, scales);
  HALFBYTE_RETURN_IF_ERROR(prepared.scalars.upload(std::as_bytes(std::span(scalars)), 0, stream));
  return stream.synchronize();
}

}  // namespace halfbyte
