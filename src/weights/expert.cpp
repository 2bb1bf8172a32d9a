// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "checkpoint/module_path.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

Result<WeightFormat> expert_format(const ExpertLayer& layer, const RawTensors& raw) {
  const auto common = layer.common_class();
  const RawTensor& payload = *projection_entries(layer, 0, Projection::kDown).payload();
  if (!common) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("up_proj is {}, down_proj is {}; the projections of an expert must be "
                    "stored alike",
                    linear_class_name(layer.kind(Projection::kUp).linear_class),
                    linear_class_name(layer.kind(Projection::kDown).linear_class)));
  }
  switch (*common) {
    case LinearClass::kNvfp4:
      return WeightFormat::kNvfp4;
    case LinearClass::kDense:
      return wide_format(payload.dtype);
    case LinearClass::kMxfp4:
      return Status(StatusCode::kUnsupported,
                    fmt::format("experts are MXFP4{}", in_file(payload, raw)));
    default:
      return WeightFormat::kFp8;
  }
}

/// Moves a slice into a linear: its own bytes are kept in `owned`, and `view` shows them.
void take_slice(StackSlice slice,
                std::span<const std::uint8_t>& view,
                std::unique_ptr<std::vector<std::uint8_t>>& owned) {
  view = slice.bytes;
  if (slice.owned.empty()) return;
  owned = std::make_unique<std::vector<std::uint8_t>>(std::move(slice.owned));
  view = *owned;
}

/// One projection of a stacked expert.
Result<LoadedLinear> load_stacked(const ExpertLayer& layer,
                                  std::int64_t expert_idx,
                                  Projection projection,
                                  const LinearKind& kind) {
  const LinearEntries& entries = projection_entries(layer, expert_idx, projection);
  const RawTensor& payload = *entries.payload();
  const bool is_nvfp4 = kind.linear_class == LinearClass::kNvfp4;
  StackSliceSpec spec;
  spec.projection = projection;
  spec.expert_idx = expert_idx;
  spec.num_rows = kind.rows;
  spec.num_stack_rows = projection == Projection::kDown || !layer.gated ? kind.rows : 2 * kind.rows;
  spec.num_units = is_nvfp4 ? kind.cols / 2 : kind.cols;
  spec.unit_bytes = is_nvfp4 ? 1 : dtype_bytes(payload.dtype);
  LoadedLinear linear;
  linear.linear_class = kind.linear_class;
  linear.matrix.rows = kind.rows;
  linear.matrix.cols = kind.cols;
  take_slice(slice_stack(payload.bytes, layer.form, spec), linear.matrix.codes, linear.owned_codes);
  linear.matrix.format = is_nvfp4 ? WeightFormat::kNvfp4 : wide_format(payload.dtype);
  if (!is_nvfp4) return linear;
  linear.matrix.global_scale = kind.global_scale;
  spec.num_units = kind.cols / 16;
  const RawTensor& scale = *entries[TensorRole::kWeightScale];
  take_slice(slice_stack(scale.bytes, layer.form, spec), linear.matrix.block_scale,
             linear.owned_block_scale);
  HALFBYTE_RETURN_IF_ERROR(check_block_scales(short_name(scale), linear));
  return linear;
}

Status refuse_extras(const LinearEntries& entries) {
  if (const RawTensor* bias = entries[TensorRole::kBias]) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: biases of experts", short_name(*bias)));
  }
  if (const RawTensor* scale = entries[TensorRole::kPreQuantScale]) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: NVFP4_AWQ's scale per column of an expert's input", short_name(*scale)));
  }
  return {};
}

}  // namespace

const LinearEntries& projection_entries(const ExpertLayer& layer,
                                        std::int64_t expert_idx,
                                        Projection projection) {
  const ExpertTensors& tensors = *layer.tensors;
  if (!tensors.is_stacked()) {
    return tensors
        .experts[static_cast<std::size_t>(expert_idx)][static_cast<std::size_t>(projection)];
  }
  return projection == Projection::kDown ? tensors.stacked_down : tensors.stacked_gate_up;
}

Result<LoadedLinear> load_projection(const ExpertLayer& layer,
                                     std::int64_t expert_idx,
                                     Projection projection,
                                     const RawTensors& raw) {
  const LinearEntries& entries = projection_entries(layer, expert_idx, projection);
  LinearKind kind = layer.kind(projection);
  if (kind.linear_class == LinearClass::kNvfp4) {
    kind.global_scale = layer.global_scales[static_cast<std::size_t>(expert_idx)]
                                           [static_cast<std::size_t>(projection)];
  }
  auto linear = layer.tensors->is_stacked() ? load_stacked(layer, expert_idx, projection, kind)
                                            : load_linear(entries, kind);
  Status status = linear.ok() ? Status() : linear.take_status();
  if (status.ok()) status = refuse_extras(entries);
  if (status.ok()) return linear;
  return Status(status.code(), std::string(status.message()) + in_file(*entries.payload(), raw));
}

Result<ExpertLayerInfo> CheckpointWeights::expert_layer(std::int64_t layer_idx,
                                                        ActivationMode mode) {
  const auto it = impl_->layers.find(layer_idx);
  if (it == impl_->layers.end()) {
    return impl_->missing(fmt::format("layers.{}.mlp.experts.0.down_proj.weight", layer_idx));
  }
  const ExpertLayer& layer = it->second;
  ExpertLayerInfo info;
  auto format = expert_format(layer, *impl_->raw);
  if (!format.ok()) return format.take_status().with_context(fmt::format("layer {}", layer_idx));
  info.format = *format;
  const RawTensor& payload = *projection_entries(layer, 0, Projection::kDown).payload();
  const std::string_view module = parent_path(payload.name);
  info.declares_activation_quantization =
      info.format == WeightFormat::kNvfp4 &&
      impl_->config.quant.declares_activation_quantization(module).value_or(
          count_input_scales(layer) == layer.num_experts);
  if (mode == ActivationMode::kW4a4 && info.format == WeightFormat::kNvfp4) {
    HALFBYTE_ASSIGN_OR_RETURN(info.input_scales, read_input_scales(layer, *impl_->raw));
  }
  // Whether each expert reaches a layer that needs it is that layer's to check; from here on all of
  // them have an owner, on this rank or another.
  impl_->consume(layer.tensors->stacked_gate_up);
  impl_->consume(layer.tensors->stacked_down);
  for (const ExpertEntries& expert : layer.tensors->experts) {
    for (const LinearEntries& entries : expert)
      impl_->consume(entries);
  }
  return info;
}

Result<LoadedExpert> CheckpointWeights::expert(std::int64_t layer_idx, std::int64_t expert_idx) {
  const auto it = impl_->layers.find(layer_idx);
  if (it == impl_->layers.end() || expert_idx < 0 || expert_idx >= it->second.num_experts) {
    return impl_->missing(
        fmt::format("layers.{}.mlp.experts.{}.down_proj.weight", layer_idx, expert_idx));
  }
  const ExpertLayer& layer = it->second;
  LoadedExpert expert;
  for (const Projection projection : kProjections) {
    if (!layer.has(projection)) continue;
    LoadedLinear& into = projection == Projection::kGate ? expert.gate
                         : projection == Projection::kUp ? expert.up
                                                         : expert.down;
    auto linear = load_projection(layer, expert_idx, projection, *impl_->raw);
    if (!linear.ok()) {
      return linear.take_status().with_context(
          fmt::format("layer {}: expert {}", layer_idx, expert_idx));
    }
    into = std::move(linear).value();
  }
  return expert;
}

void CheckpointWeights::drop_expert(std::int64_t layer_idx, std::int64_t expert_idx) {
  const auto it = impl_->layers.find(layer_idx);
  if (it == impl_->layers.end() || expert_idx < 0 || expert_idx >= it->second.num_experts) return;
  const ExpertTensors& tensors = *it->second.tensors;
  if (tensors.is_stacked()) return;  // all experts share the tensors
  for (const LinearEntries& entries : tensors.experts[static_cast<std::size_t>(expert_idx)]) {
    if (entries.payload() != nullptr) impl_->raw->drop(*entries.payload());
    if (const RawTensor* scale = entries[TensorRole::kWeightScale]) impl_->raw->drop(*scale);
  }
}

}  // namespace halfbyte
