// SPDX-License-Identifier: Apache-2.0
//
// Activations as the kernels read them: rows of x, and h.
#include <algorithm>
#include <cstring>

#include "formats/nvfp4.h"
#include "moe/backends/cpu_step.h"

namespace halfbyte {
namespace {

float* scratch_row(const CpuStep& step, int thread_idx) {
  return reinterpret_cast<float*>(step.scratch + thread_idx * cpu_scratch_bytes(step.plan));
}

void read_payload_row(const CpuStep& step, std::int64_t src, std::int64_t dst) {
  cpu::int8_from_nvfp4(step.tokens.x_codes + src * step.hidden() / 2,
                       step.tokens.x_block_scale + src * step.hidden() / kNvfp4BlockSize,
                       step.hidden(), step.x.int8(dst));
  step.x_scale[dst] = step.dynamic() ? step.tokens.x_row_scale[src] : step.prepared.scales.s1;
}

void make_x_row(const CpuStep& step, std::int64_t src, std::int64_t dst, int thread_idx) {
  if (step.tokens.x.data == nullptr) return read_payload_row(step, src, dst);
  if (step.format == OperandFormat::kF32) return widen_x_row(step.tokens, src, step.x.f32(dst));
  float* row = scratch_row(step, thread_idx);
  widen_x_row(step.tokens, src, row);
  const std::int64_t cols = step.hidden();
  if (step.format == OperandFormat::kSplit15)
    return step.kernels.quantize_split15(row, cols, step.x.split15(dst));
  if (!is_w4a4(step.plan.mode)) return step.kernels.quantize_int8(row, cols, step.x.int8(dst));
  step.x_scale[dst] = step.dynamic() ? dynamic_row_scale(row, cols) : step.prepared.scales.s1;
  step.kernels.quantize_nvfp4(row, cols, step.x_scale[dst], step.x.int8(dst));
}

// make_row(row, thread_idx) for every row in [0, num_rows), several a task when there are many.
template <typename MakeRow>
void for_each_row(const CpuStep& step, std::int64_t num_rows, const MakeRow& make_row) {
  const std::int64_t per_task =
      std::clamp<std::int64_t>(num_rows / (4 * step.pool.num_threads()), 1, 8);
  step.pool.parallel_for(ceil_div(num_rows, per_task), [&](std::int64_t task, int thread_idx) {
    const std::int64_t end = std::min(num_rows, (task + 1) * per_task);
    for (std::int64_t row = task * per_task; row < end; ++row)
      make_row(row, thread_idx);
  });
}

void mark_rows_in_use(const CpuStep& step) {
  std::memset(step.in_use, 0, static_cast<std::size_t>(step.tokens.num_rows));
  for (std::int64_t i = 0; i < step.num_active; ++i) {
    for (std::int64_t j = 0; j < step.active[i].count; ++j)
      step.in_use[step.tokens.route_row[step.active[i].first_route + j]] = 1;
  }
}

void make_shared_rows(const CpuStep& step) {
  mark_rows_in_use(step);
  for_each_row(step, step.tokens.num_rows, [&](std::int64_t row, int thread_idx) {
    if (step.in_use[row] != 0) make_x_row(step, row, row, thread_idx);
  });
}

void make_rows_of_routes(const CpuStep& step) {
  for (std::int64_t i = 0; i < step.num_active; ++i) {
    const ActiveExpert& active = step.active[i];
    for_each_row(step, active.count, [&](std::int64_t j, int thread_idx) {
      make_x_row(step, active.first_route + j, active.first_slot + j, thread_idx);
    });
  }
}

}  // namespace

OperandFormat operand_format(const ExpertPlan& plan) {
  if (plan.mode != ActivationMode::kW4a16) return OperandFormat::kInt8;
  const bool exact = plan.exact_float32 || plan.spec.expert_format != WeightFormat::kNvfp4;
  return exact ? OperandFormat::kF32 : OperandFormat::kSplit15;
}

std::int64_t operand_row_bytes(OperandFormat format, std::int64_t cols) {
  if (format == OperandFormat::kF32) return round_up(cols * 4, 64);
  const std::size_t record =
      format == OperandFormat::kSplit15 ? sizeof(cpu::Split15Record) : sizeof(cpu::Int8Record);
  return round_up(cpu::num_records(cols) * static_cast<std::int64_t>(record), 64);
}

bool reads_x_in_place(const ExpertPlan& plan) {
  return operand_format(plan) == OperandFormat::kF32 && plan.spec.x_dtype == DType::kF32;
}

std::int64_t cpu_scratch_bytes(const ExpertPlan& plan) {
  return round_up(plan.spec.hidden_size * 4, 64);
}

void make_x_rows(const CpuStep& step) {
  if (step.x.data == nullptr) return;
  step.tokens.route_row != nullptr ? make_shared_rows(step) : make_rows_of_routes(step);
}

void store_h(
    const CpuStep& step, std::int64_t slot, std::int64_t first, const float* h, std::int64_t cols) {
  const std::int64_t record = first / cpu::kSuperblockCols;
  const std::size_t bytes = static_cast<std::size_t>(cols) * sizeof(float);
  if (step.format == OperandFormat::kF32) {
    std::memcpy(step.h.f32(slot) + first, h, bytes);
  } else if (step.format == OperandFormat::kSplit15) {
    step.kernels.quantize_split15(h, cols, step.h.split15(slot) + record);
  } else if (step.dynamic()) {
    std::memcpy(step.wide_h + slot * step.width() + first, h, bytes);
  } else if (step.plan.mode == ActivationMode::kW4a4) {
    step.kernels.quantize_nvfp4(h, cols, step.prepared.scales.s2, step.h.int8(slot) + record);
  } else {
    step.kernels.quantize_int8(h, cols, step.h.int8(slot) + record);
  }
}

void quantize_wide_h(const CpuStep& step) {
  if (!step.dynamic()) return;
  for_each_row(step, step.num_slots, [&](std::int64_t slot, int) {
    const float* row = step.wide_h + slot * step.width();
    step.h_scale[slot] = dynamic_row_scale(row, step.width());
    step.kernels.quantize_nvfp4(row, step.width(), step.h_scale[slot], step.h.int8(slot));
  });
}

}  // namespace halfbyte
