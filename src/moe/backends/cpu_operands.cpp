// SPDX-License-Identifier: Apache-2.0
//
// Activations as the kernels read them: rows of x, and h.
#include <algorithm>
#include <cstring>

#include "formats/nvfp4.h"
#include "moe/backends/cpu_step.h"

namespace halfbyte {
namespace {

// Rows that one task makes: enough work to be worth handing to a thread.
constexpr std::int64_t kRowsPerTask = 8;

struct Scratch {
  float* row = nullptr;
  std::uint8_t* codes = nullptr;
  std::uint8_t* block_scale = nullptr;
};

std::int64_t widest_row(const ExpertPlan& plan) {
  return std::max(plan.spec.hidden_size, plan.shard.intermediate_size);
}

Scratch scratch_of(const CpuStep& step, int thread_idx) {
  std::byte* base = step.scratch + thread_idx * cpu_scratch_bytes(step.plan);
  const std::int64_t cols = widest_row(step.plan);
  auto* codes = reinterpret_cast<std::uint8_t*>(base + cols * 4);
  return {reinterpret_cast<float*>(base), codes, codes + cols / 2};
}

// NVFP4 activations with the decode-side scale s, as records.
void quantize_nvfp4(const float* row,
                    std::int64_t cols,
                    float s,
                    std::uint8_t* codes,
                    std::uint8_t* block_scale,
                    cpu::Int8Record* dst) {
  quantize_activations(row, 1, cols, s, codes, block_scale);
  cpu::int8_from_nvfp4(codes, block_scale, cols, dst);
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
  const Scratch scratch = scratch_of(step, thread_idx);
  widen_x_row(step.tokens, src, scratch.row);
  const std::int64_t cols = step.hidden();
  if (step.format == OperandFormat::kSplit15)
    return step.kernels.quantize_split15(scratch.row, cols, step.x.split15(dst));
  if (!is_w4a4(step.plan.mode))
    return step.kernels.quantize_int8(scratch.row, cols, step.x.int8(dst));
  step.x_scale[dst] =
      step.dynamic() ? dynamic_row_scale(scratch.row, cols) : step.prepared.scales.s1;
  quantize_nvfp4(scratch.row, cols, step.x_scale[dst], scratch.codes, scratch.block_scale,
                 step.x.int8(dst));
}

// make_row(row, thread_idx) for every row in [0, num_rows).
template <typename MakeRow>
void for_each_row(const CpuStep& step, std::int64_t num_rows, const MakeRow& make_row) {
  step.pool.parallel_for(ceil_div(num_rows, kRowsPerTask), [&](std::int64_t task, int thread_idx) {
    const std::int64_t end = std::min(num_rows, (task + 1) * kRowsPerTask);
    for (std::int64_t row = task * kRowsPerTask; row < end; ++row)
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
  const std::int64_t cols = widest_row(plan);
  return round_up(cols * 4 + cols / 2 + cols / kNvfp4BlockSize, 64);
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
    std::uint8_t codes[cpu::kSuperblockCols / 2];
    std::uint8_t block_scale[cpu::kSuperblockCols / kNvfp4BlockSize];
    quantize_nvfp4(h, cols, step.prepared.scales.s2, codes, block_scale,
                   step.h.int8(slot) + record);
  } else {
    step.kernels.quantize_int8(h, cols, step.h.int8(slot) + record);
  }
}

void quantize_wide_h(const CpuStep& step) {
  if (!step.dynamic()) return;
  for_each_row(step, step.num_slots, [&](std::int64_t slot, int thread_idx) {
    const Scratch scratch = scratch_of(step, thread_idx);
    const float* row = step.wide_h + slot * step.width();
    step.h_scale[slot] = dynamic_row_scale(row, step.width());
    quantize_nvfp4(row, step.width(), step.h_scale[slot], scratch.codes, scratch.block_scale,
                   step.h.int8(slot));
  });
}

}  // namespace halfbyte
