// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_weights.h"

#include <array>
#include <cstring>
#include <utility>

#include "kernels/cuda/sm90/prepare_weights.h"
#include "moe/backends/cuda_backend.h"
#include "moe/backends/cuda_sm90_plan.h"

namespace halfbyte {
namespace {

using device::DeviceBuffer;

constexpr std::size_t kPartAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

std::size_t staged_bytes(const CanonicalMatrix& matrix) {
  return aligned(matrix.codes.size()) + aligned(matrix.block_scale.size());
}

// Puts one matrix after the other into the host's half of the staging memory; offsets are the same
// in the device's half.
class Packer {
 public:
  explicit Packer(const Sm90Staging& staging) : staging_(staging) {}

  /// Where the bytes will lie on the device.
  const std::uint8_t* add(std::span<const std::uint8_t> bytes) {
    std::memcpy(staging_.host.data() + end_, bytes.data(), bytes.size());
    const auto* at = staging_.device_memory.as<std::uint8_t>(end_);
    end_ += aligned(bytes.size());
    return at;
  }
  std::span<const std::byte> packed() const { return staging_.host.span().first(end_); }

 private:
  const Sm90Staging& staging_;
  std::size_t end_ = 0;
};

void pack_half(const CanonicalMatrix& matrix,
               int half,
               Packer& packer,
               sm90::PrepareWeightsArgs& args) {
  args.codes[half] = packer.add(matrix.codes);
  args.block_scale[half] = packer.add(matrix.block_scale);
}

// What w4a8 has beside the others.
Status allocate_fp8(const ExpertPlan& plan, PreparedSm90Experts& prepared) {
  const auto factor_bytes = [&](const sm90::WeightLayout& layout) {
    return layout.shape.num_experts * layout.rows() * std::int64_t{sizeof(float)};
  };
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared.gate_up_factor, factor_bytes(sm90_gate_up(plan))));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared.down_factor, factor_bytes(sm90_down(plan))));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared.blocks_below, sizeof(std::uint64_t)));
  const device::Stream stream = device::Stream::borrow(nullptr);
  HALFBYTE_RETURN_IF_ERROR(prepared.blocks_below.fill(std::byte{0}, stream));
  return stream.synchronize();
}

// One matrix of an expert, in the form of the plan's mode.
Status launch_prepare(const ExpertPlan& plan,
                      const sm90::WeightLayout& layout,
                      std::int64_t local_expert_idx,
                      const sm90::PrepareWeightsArgs& args,
                      const PreparedSm90Experts& prepared,
                      const DeviceBuffer& row_factor,
                      const device::Stream& stream) {
  if (plan.mode != ActivationMode::kW4a8)
    return launch(layout, local_expert_idx, args, stream.handle());
  const sm90::PrepareFp8WeightsArgs folded = {args, row_factor.as<float>(),
                                              prepared.blocks_below.as<unsigned long long>()};
  return launch(layout, local_expert_idx, folded, stream.handle());
}

}  // namespace

Status Sm90Staging::reserve(std::size_t bytes) {
  if (bytes <= host.size()) return {};
  HALFBYTE_ASSIGN_OR_RETURN(device_memory, DeviceBuffer::allocate(bytes));
  HALFBYTE_ASSIGN_OR_RETURN(host, device::PinnedBuffer::allocate(bytes));
  return {};
}

Result<std::unique_ptr<PreparedSm90Experts>> allocate_sm90_experts(
    const ExpertPlan& plan, std::shared_ptr<Sm90Staging> staging) {
  const auto experts = static_cast<std::size_t>(plan.shard.num_local_experts);
  auto prepared = std::make_unique<PreparedSm90Experts>();
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->gate_up, sm90_gate_up(plan).bytes()));
  HALFBYTE_RETURN_IF_ERROR(allocate(prepared->down, sm90_down(plan).bytes()));
  HALFBYTE_ASSIGN_OR_RETURN(prepared->alpha, DeviceBuffer::allocate(3 * experts * sizeof(float)));
  HALFBYTE_ASSIGN_OR_RETURN(prepared->quantize,
                            DeviceBuffer::allocate(2 * sizeof(cuda::QuantizeScale)));
  const auto num_counters = static_cast<std::size_t>(sm90_decode_shape(plan, {}).num_counters());
  HALFBYTE_ASSIGN_OR_RETURN(prepared->counters,
                            DeviceBuffer::allocate(num_counters * sizeof(std::int32_t)));
  if (plan.mode == ActivationMode::kW4a8) HALFBYTE_RETURN_IF_ERROR(allocate_fp8(plan, *prepared));
  prepared->staging = std::move(staging);
  return prepared;
}

Status prepare_sm90_expert(const ExpertPlan& plan,
                           std::int64_t local_expert_idx,
                           const CanonicalExpert& expert,
                           PreparedSm90Experts& prepared,
                           const device::Stream& stream) {
  Sm90Staging& staging = *prepared.staging;
  const std::scoped_lock lock(staging.mutex);
  HALFBYTE_RETURN_IF_ERROR(staging.reserve(staged_bytes(expert.gate) + staged_bytes(expert.up) +
                                           staged_bytes(expert.down)));
  Packer packer(staging);
  sm90::PrepareWeightsArgs gate_up;
  sm90::PrepareWeightsArgs down;
  const bool gated = plan.spec.activation.gated();
  if (gated) pack_half(expert.gate, 0, packer, gate_up);
  pack_half(expert.up, gated ? 1 : 0, packer, gate_up);
  pack_half(expert.down, 0, packer, down);
  gate_up.dst = prepared.gate_up.as<std::uint8_t>();
  down.dst = prepared.down.as<std::uint8_t>();
  HALFBYTE_RETURN_IF_ERROR(staging.device_memory.upload(packer.packed(), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(launch_prepare(plan, sm90_gate_up(plan), local_expert_idx, gate_up,
                                          prepared, prepared.gate_up_factor, stream));
  HALFBYTE_RETURN_IF_ERROR(launch_prepare(plan, sm90_down(plan), local_expert_idx, down, prepared,
                                          prepared.down_factor, stream));
  return stream.synchronize();
}

Status set_sm90_scales(const ExpertPlan& plan,
                       const ExpertScales& scales,
                       PreparedSm90Experts& prepared,
                       const device::Stream& stream) {
  const std::vector<float> alpha = by_projection(plan, scales);
  HALFBYTE_RETURN_IF_ERROR(prepared.alpha.upload(std::as_bytes(std::span(alpha)), 0, stream));
  const std::array quantize = {cuda::make_quantize_scale(scales.s1),
                               cuda::make_quantize_scale(scales.s2)};
  HALFBYTE_RETURN_IF_ERROR(prepared.quantize.upload(std::as_bytes(std::span(quantize)), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(reset_counters(sm90_decode_shape(plan, {}),
                                          prepared.counters.as<std::int32_t>(), stream.handle()));
  return stream.synchronize();
}

}  // namespace halfbyte
