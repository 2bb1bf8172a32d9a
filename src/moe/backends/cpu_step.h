// SPDX-License-Identifier: Apache-2.0
//
// What the phases of one step of the cpu backend share.
#ifndef HALFBYTE_MOE_BACKENDS_CPU_STEP_H_
#define HALFBYTE_MOE_BACKENDS_CPU_STEP_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "moe/backends/cpu_weights.h"
#include "moe/backends/host_backend.h"

namespace halfbyte {

/// How a GEMM reads its activations.
enum class OperandFormat {
  kF32,      // exact: other weight formats, and --dtype float32
  kSplit15,  // w4a16 (docs/numerics.md 2)
  kInt8,     // w4a8; the w4a4 modes, whose codes it holds exactly
};

OperandFormat operand_format(const ExpertPlan& plan);

/// Routes of one expert inside the current chunk. Slots number the chunk's routes from 0.
struct ActiveExpert {
  std::int64_t expert_idx = 0;
  std::int64_t first_route = 0;
  std::int64_t first_slot = 0;
  std::int64_t count = 0;
};

/// Rows of activations in one operand format.
struct OperandRows {
  std::byte* data = nullptr;
  std::int64_t row_bytes = 0;

  std::byte* row(std::int64_t row_idx) const { return data + row_idx * row_bytes; }
  float* f32(std::int64_t row_idx) const { return reinterpret_cast<float*>(row(row_idx)); }
  cpu::Split15Record* split15(std::int64_t row_idx) const {
    return reinterpret_cast<cpu::Split15Record*>(row(row_idx));
  }
  cpu::Int8Record* int8(std::int64_t row_idx) const {
    return reinterpret_cast<cpu::Int8Record*>(row(row_idx));
  }
};

/// Bytes of a row of `cols` columns.
std::int64_t operand_row_bytes(OperandFormat format, std::int64_t cols);

/// Everything that the phases of one chunk share.
struct CpuStep {
  const ExpertPlan& plan;
  const PreparedCpuExperts& prepared;
  const cpu::KernelTable& kernels;
  const DispatchedTokens& tokens;
  const ExpertOutput& output;
  ThreadPool& pool;
  OperandFormat format = OperandFormat::kF32;
  ActiveExpert* active = nullptr;
  std::int64_t num_active = 0;
  std::int64_t num_slots = 0;
  std::uint8_t* in_use = nullptr;
  OperandRows x = {};        // no data: fp32 x is read where it lies
  OperandRows h = {};        // a row per slot
  float* x_scale = nullptr;  // the scale each row was quantised with
  float* h_scale = nullptr;
  float* wide_h = nullptr;       // kW4a4Dynamic: fp32 h, until its row's scale is known
  std::byte* scratch = nullptr;  // cpu_scratch_bytes() per thread

  std::int64_t hidden() const { return plan.spec.hidden_size; }
  std::int64_t width() const { return plan.shard.intermediate_size; }
  bool dynamic() const { return plan.mode == ActivationMode::kW4a4Dynamic; }
  // The operand row of a route: the row of x when routes share rows, else the route's own slot.
  std::int64_t operand_row(std::int64_t route, std::int64_t slot) const {
    return tokens.route_row != nullptr ? tokens.route_row[route] : slot;
  }
};

/// fp32 x of a mode that takes it as given needs no copy.
bool reads_x_in_place(const ExpertPlan& plan);

/// Scratch of one thread: a row of x in fp32.
std::int64_t cpu_scratch_bytes(const ExpertPlan& plan);

/// Makes the operand rows that the chunk's routes read; other rows may hold anything.
void make_x_rows(const CpuStep& step);

/// Columns [first, first + cols) of h of one slot, from fp32; first is a multiple of 64. With a
/// dynamic scale they wait in wide_h for quantize_wide_h().
void store_h(
    const CpuStep& step, std::int64_t slot, std::int64_t first, const float* h, std::int64_t cols);
void quantize_wide_h(const CpuStep& step);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CPU_STEP_H_
