// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cpu_weights.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cpu/pack.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kUsualFp8Group = 128;

Result<cpu::PanelShape> shape_of(const char* projection, const CanonicalMatrix& matrix) {
  Result<cpu::PanelShape> shape = cpu::panel_shape(matrix);
  if (!shape.ok()) return shape.take_status().with_context(projection);
  return shape;
}

Status choose_shapes(const CanonicalExpert& expert, CpuExpert& packed) {
  HALFBYTE_ASSIGN_OR_RETURN(packed.gate_up, shape_of("up", expert.up));
  HALFBYTE_ASSIGN_OR_RETURN(packed.down, shape_of("down", expert.down));
  packed.gated = expert.gate.rows > 0;
  if (!packed.gated) return {};
  HALFBYTE_ASSIGN_OR_RETURN(const cpu::PanelShape gate, shape_of("gate", expert.gate));
  if (gate.panel_bytes() == packed.gate_up.panel_bytes()) return {};
  return {StatusCode::kUnsupported,
          fmt::format("gate: want the scale groups of up, {} columns, got {}",
                      packed.gate_up.scale_block_cols, gate.scale_block_cols)};
}

Status pack(const char* projection,
            const CanonicalMatrix& matrix,
            const cpu::PanelShape& shape,
            std::uint8_t* dst,
            std::int64_t stride) {
  return cpu::pack_panels(matrix, shape, dst, stride).with_context(projection);
}

cpu::PanelShape planned_shape(const ExpertPlan& plan, std::int64_t rows, std::int64_t cols) {
  const WeightFormat format = plan.spec.expert_format;
  return {.format = format,
          .rows = rows,
          .cols = cols,
          .scale_block_cols = format == WeightFormat::kFp8 ? kUsualFp8Group : 0};
}

}  // namespace

CpuExpert planned_cpu_expert(const ExpertPlan& plan) {
  const std::int64_t hidden = plan.spec.hidden_size;
  const std::int64_t width = plan.shard.intermediate_size;
  CpuExpert expert;
  expert.gate_up = planned_shape(plan, width, hidden);
  expert.down = planned_shape(plan, hidden, width);
  expert.gated = plan.spec.activation.gated();
  return expert;
}

Status allocate_cpu_experts(const ExpertPlan& plan, PreparedCpuExperts& prepared) {
  prepared.experts.resize(static_cast<std::size_t>(plan.shard.num_local_experts));
  const auto bytes = static_cast<std::size_t>(planned_cpu_expert(plan).total_bytes());
  HALFBYTE_ASSIGN_OR_RETURN(prepared.panels, HostBuffer::allocate(prepared.experts.size() * bytes));
  auto* next = prepared.panels.as<std::uint8_t>();
  for (CpuExpert& expert : prepared.experts) {
    expert = planned_cpu_expert(plan);
    expert.panels = {next, bytes};
    next += bytes;
  }
  return {};
}

Status pack_cpu_expert(const CanonicalExpert& expert, CpuExpert& packed) {
  HALFBYTE_RETURN_IF_ERROR(choose_shapes(expert, packed));
  const auto bytes = static_cast<std::size_t>(packed.total_bytes());
  if (packed.panels.size() < bytes) {
    HALFBYTE_ASSIGN_OR_RETURN(packed.own, HostBuffer::allocate(bytes));
    packed.panels = {packed.own.as<std::uint8_t>(), bytes};
  }
  std::uint8_t* base = packed.panels.data();
  const std::int64_t panel = packed.gate_up.panel_bytes();
  const std::int64_t stride = packed.gated ? 2 * panel : panel;
  if (packed.gated) {
    HALFBYTE_RETURN_IF_ERROR(pack("gate", expert.gate, packed.gate_up, base, stride));
  }
  std::uint8_t* up = packed.gated ? base + panel : base;
  HALFBYTE_RETURN_IF_ERROR(pack("up", expert.up, packed.gate_up, up, stride));
  return pack("down", expert.down, packed.down, base + packed.gate_up_bytes(),
              packed.down.panel_bytes());
}

}  // namespace halfbyte
