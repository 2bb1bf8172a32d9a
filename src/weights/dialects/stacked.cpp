// SPDX-License-Identifier: Apache-2.0
#include "weights/dialects/stacked.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace halfbyte {
namespace {

/// Rows and units of a stack after the expert axis, as the file must have them.
std::array<std::int64_t, 2> file_shape(const StackForm& form,
                                       std::int64_t rows,
                                       std::int64_t units) {
  return form.transposed ? std::array{units, rows} : std::array{rows, units};
}

Status check_shape(const RawTensor& tensor,
                   std::int64_t num_experts,
                   const std::array<std::int64_t, 2>& want) {
  const auto& shape = tensor.shape;
  if (shape.size() == 3 && shape[0] == num_experts && shape[1] == want[0] && shape[2] == want[1]) {
    return {};
  }
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: shape {}, want [{}, {}, {}]", short_name(tensor),
                            format_shape(shape), num_experts, want[0], want[1]));
}

Result<LinearClass> stack_class(const LinearEntries& entries, const RawTensor& payload) {
  const RawTensor* scale = entries[TensorRole::kWeightScale];
  if (scale == nullptr && is_wide_float(payload.dtype)) return LinearClass::kDense;
  const bool is_bytes = payload.dtype == DType::kU8 || payload.dtype == DType::kI8;
  if (scale != nullptr && is_bytes) {
    if (scale->dtype == DType::kF8E4m3) return LinearClass::kNvfp4;
    if (scale->dtype == DType::kU8 || scale->dtype == DType::kF8E8m0) return LinearClass::kMxfp4;
  }
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{}: {} {} stacked experts; NVFP4 and 16-bit ones are read", short_name(payload),
                  dtype_name(payload.dtype), scale == nullptr ? "unscaled" : "scaled"));
}

}  // namespace

StackForm stack_form(const ModelConfig& config) {
  const bool is_llama4 = config.model_type.starts_with("llama4");
  const bool is_gpt_oss = config.model_type == "gpt_oss";
  return {.transposed = is_llama4, .interleaved = is_gpt_oss};
}

Result<LinearKind> classify_stack(const LinearEntries& entries,
                                  Projection projection,
                                  const StackForm& form,
                                  bool gated,
                                  const ModelConfig& config) {
  const RawTensor* payload = entries.payload();
  if (payload == nullptr) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("stacked {}: absent",
                              projection == Projection::kDown ? "down_proj" : "gate_up_proj"));
  }
  const bool is_down = projection == Projection::kDown;
  LinearKind kind;
  HALFBYTE_ASSIGN_OR_RETURN(kind.linear_class, stack_class(entries, *payload));
  kind.rows = is_down ? config.hidden_size : config.moe_intermediate_size;
  kind.cols = is_down ? config.moe_intermediate_size : config.hidden_size;
  if (kind.linear_class == LinearClass::kMxfp4) return kind;  // named; refused by who wants it
  const std::int64_t stack_rows = is_down || !gated ? kind.rows : 2 * kind.rows;
  if (kind.linear_class == LinearClass::kDense) {
    HALFBYTE_RETURN_IF_ERROR(
        check_shape(*payload, config.num_experts, file_shape(form, stack_rows, kind.cols)));
    return kind;
  }
  kind.dialect = entries[TensorRole::kWeightGlobalScale] != nullptr ? &kCompressedTensorsDialect
                                                                    : &kModelOptDialect;
  if (kind.cols % 16 != 0) {
    return Status(StatusCode::kCorruptData, fmt::format("{}: {} columns, want a multiple of 16",
                                                        short_name(*payload), kind.cols));
  }
  HALFBYTE_RETURN_IF_ERROR(
      check_shape(*payload, config.num_experts, file_shape(form, stack_rows, kind.cols / 2)));
  HALFBYTE_RETURN_IF_ERROR(check_shape(*entries[TensorRole::kWeightScale], config.num_experts,
                                       file_shape(form, stack_rows, kind.cols / 16)));
  return kind;
}

StackSlice slice_stack(std::span<const std::uint8_t> stack,
                       const StackForm& form,
                       const StackSliceSpec& spec) {
  const auto expert_bytes =
      static_cast<std::size_t>(spec.num_stack_rows * spec.num_units * spec.unit_bytes);
  const auto expert =
      stack.subspan(static_cast<std::size_t>(spec.expert_idx) * expert_bytes, expert_bytes);
  const bool is_up = spec.projection == Projection::kUp;
  const bool is_half = spec.num_stack_rows == 2 * spec.num_rows;
  const StackForm row_form = is_half ? form : StackForm{.transposed = form.transposed};
  const bool offset_up = is_half && is_up;
  StackSlice slice;
  if (!row_form.transposed && !row_form.interleaved) {
    const std::int64_t first = stacked_row(row_form, offset_up, 0, spec.num_rows);
    const auto row_bytes = static_cast<std::size_t>(spec.num_units * spec.unit_bytes);
    slice.bytes = expert.subspan(static_cast<std::size_t>(first) * row_bytes,
                                 static_cast<std::size_t>(spec.num_rows) * row_bytes);
    return slice;
  }
  slice.owned.resize(static_cast<std::size_t>(spec.num_rows * spec.num_units * spec.unit_bytes));
  const auto unit_bytes = static_cast<std::size_t>(spec.unit_bytes);
  std::uint8_t* out = slice.owned.data();
  for (std::int64_t row = 0; row < spec.num_rows; ++row) {
    const std::int64_t source = stacked_row(row_form, offset_up, row, spec.num_rows);
    for (std::int64_t unit = 0; unit < spec.num_units; ++unit, out += unit_bytes) {
      const std::int64_t at = row_form.transposed ? unit * spec.num_stack_rows + source
                                                  : source * spec.num_units + unit;
      std::memcpy(out, expert.data() + static_cast<std::size_t>(at) * unit_bytes, unit_bytes);
    }
  }
  return slice;
}

}  // namespace halfbyte
