// SPDX-License-Identifier: Apache-2.0
//
// Experts of a layer stacked in two 3-D tensors, gate_up and down (checkpoints.md 5.3).
#ifndef HALFBYTE_WEIGHTS_DIALECTS_STACKED_H_
#define HALFBYTE_WEIGHTS_DIALECTS_STACKED_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "weights/classify.h"

namespace halfbyte {

/// How the stacks lie. A family writes one form: it is chosen by name, never by shape, which can
/// be ambiguous (2 * I = H).
struct StackForm {
  bool transposed = false;   // [E, K, N] instead of [E, N, K]: the reduction axis is the middle one
  bool interleaved = false;  // gate_up rows g0, u0, g1, u1, ... instead of gates first
};
StackForm stack_form(const ModelConfig& config);

/// Source row (or column, when transposed) of gate_up that holds row `row` of gate or up.
constexpr std::int64_t stacked_row(const StackForm& form,
                                   bool is_up,
                                   std::int64_t row,
                                   std::int64_t intermediate_size) {
  if (form.interleaved) return 2 * row + (is_up ? 1 : 0);
  return row + (is_up ? intermediate_size : 0);
}

/// What one projection of a stack is; shapes are checked against the config's sizes.
Result<LinearKind> classify_stack(const LinearEntries& entries,
                                  Projection projection,
                                  const StackForm& form,
                                  bool gated,
                                  const ModelConfig& config);

/// Part of a stack in canonical order: a view into the file when nothing has to move.
struct StackSlice {
  std::span<const std::uint8_t> bytes;
  std::vector<std::uint8_t> owned;  // when rows had to be gathered
};

/// Rows of one projection of expert `expert_idx`. `num_units` is the width of a canonical row in
/// units of `unit_bytes` that stay together (a byte of codes, a scale, a bf16).
struct StackSliceSpec {
  Projection projection = Projection::kGate;
  std::int64_t expert_idx = 0;
  std::int64_t num_rows = 0;        // of this projection
  std::int64_t num_stack_rows = 0;  // of the stack: twice as many for gate and up
  std::int64_t num_units = 0;
  std::int64_t unit_bytes = 1;
};
StackSlice slice_stack(std::span<const std::uint8_t> stack,
                       const StackForm& form,
                       const StackSliceSpec& spec);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_DIALECTS_STACKED_H_
