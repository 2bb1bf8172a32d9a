// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

Result<WeightFormat> expert_format(const ExpertLayer& layer, const RawTensors& raw) {
  const auto common = layer.common_class();
  const RawTensor* payload = layer.tensors->is_stacked() ? layer.tensors->stacked_down.payload()
                                                         : layer.tensors->experts[0][2].payload();
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
      return payload->dtype == DType::kBf16  ? WeightFormat::kBf16
             : payload->dtype == DType::kF16 ? WeightFormat::kF16
                                             : WeightFormat::kF32;
    case LinearClass::kMxfp4:
      return Status(StatusCode::kUnsupported,
                    fmt::format("experts are MXFP4{}", in_file(*payload, raw)));
    default:
      return WeightFormat::kFp8;
  }
}

/// One projection of a stacked expert.
Result<LoadedLinear> load_stacked(const ExpertLayer& layer,
                                  std::int64_t expert_idx,
                                  Projection projection) {
  const LinearKind& kind = layer.kind(projection);
  const LinearEntries& entries = projection == Projection::kDown ? layer.tensors->stacked_down
                                                                 : layer.tensors->stacked_gate_up;
  const RawTensor& payload = *entries.payload();
  const bool is_nvfp4 = kind.linear_class == LinearClass::kNvfp4;
  StackSliceSpec spec;
  spec.projection = projection;
  spec.expert_idx = expert_idx;
  spec.num_rows = kind.rows;
  spec.num_stack_rows = projection == Projection::kDown || !layer.gated ? kind.rows : 2 * kind.rows;
  spec.num_units = is_nvfp4 ? kind.cols / 2 : kind.cols;
  spec.unit_bytes = is_nvfp4 ? 1 : dtype_bytes(payload.dtype);
  StackSlice codes = slice_stack(payload.bytes, layer.form, spec);
  LoadedLinear linear;
  linear.linear_class = kind.linear_class;
  linear.matrix.rows = kind.rows;
  linear.matrix.cols = kind.cols;
  linear.matrix.codes = codes.bytes;
  if (!codes.owned.empty()) {
    linear.owned_codes = std::make_unique<std::vector<std::uint8_t>>(std::move(codes.owned));
    linear.matrix.codes = *linear.owned_codes;
  }
  if (!is_nvfp4) {
    linear.matrix.format = payload.dtype == DType::kBf16  ? WeightFormat::kBf16
                           : payload.dtype == DType::kF16 ? WeightFormat::kF16
                                                          : WeightFormat::kF32;
    return linear;
  }
  linear.matrix.format = WeightFormat::kNvfp4;
  linear.matrix.global_scale = layer.global_scales[static_cast<std::size_t>(expert_idx)]
                                                  [static_cast<std::size_t>(projection)];
  spec.num_units = kind.cols / 16;
  const RawTensor& scale = *entries[TensorRole::kWeightScale];
  StackSlice scales = slice_stack(scale.bytes, layer.form, spec);
  linear.matrix.block_scale = scales.bytes;
  if (!scales.owned.empty()) {
    linear.owned_block_scale = std::make_unique<std::vector<std::uint8_t>>(std::move(scales.owned));
    linear.matrix.block_scale = *linear.owned_block_scale;
  }
  HALFBYTE_RETURN_IF_ERROR(check_block_scales(short_name(scale), linear));
  return linear;
}

Result<LoadedLinear> load_projection(const ExpertLayer& layer,
                                     std::int64_t expert_idx,
                                     Projection projection,
                                     const RawTensors& raw) {
  const bool stacked = layer.tensors->is_stacked();
  const LinearEntries& entries = !stacked
                                     ? layer.tensors->experts[static_cast<std::size_t>(expert_idx)]
                                                             [static_cast<std::size_t>(projection)]
                                 : projection == Projection::kDown ? layer.tensors->stacked_down
                                                                   : layer.tensors->stacked_gate_up;
  auto linear = stacked ? load_stacked(layer, expert_idx, projection)
                        : load_linear(entries, layer.kind(projection));
  Status status = linear.ok() ? Status() : linear.take_status();
  if (status.ok() && entries[TensorRole::kBias] != nullptr) {
    status = Status(StatusCode::kUnsupported,
                    fmt::format("{}: biases of experts", short_name(*entries[TensorRole::kBias])));
  }
  if (status.ok()) return linear;
  return Status(status.code(), std::string(status.message()) + in_file(*entries.payload(), raw))
      .with_context(fmt::format("layer {}: expert {}", layer.layer_idx, expert_idx));
}

template <typename Visit>
void for_each_entries(const ExpertLayer& layer, std::int64_t expert_idx, Visit visit) {
  if (layer.tensors->is_stacked()) return;  // all experts share the tensors
  for (const LinearEntries& entries :
       layer.tensors->experts[static_cast<std::size_t>(expert_idx)]) {
    visit(entries);
  }
}

}  // namespace

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
  const RawTensor* payload = layer.tensors->is_stacked() ? layer.tensors->stacked_down.payload()
                                                         : layer.tensors->experts[0][2].payload();
  const std::string_view module = payload->name.substr(0, payload->name.rfind('.'));
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
  if (layer.gated) {
    HALFBYTE_ASSIGN_OR_RETURN(expert.gate,
                              load_projection(layer, expert_idx, Projection::kGate, *impl_->raw));
  }
  HALFBYTE_ASSIGN_OR_RETURN(expert.up,
                            load_projection(layer, expert_idx, Projection::kUp, *impl_->raw));
  HALFBYTE_ASSIGN_OR_RETURN(expert.down,
                            load_projection(layer, expert_idx, Projection::kDown, *impl_->raw));
  return expert;
}

void CheckpointWeights::drop_expert(std::int64_t layer_idx, std::int64_t expert_idx) {
  const auto it = impl_->layers.find(layer_idx);
  if (it == impl_->layers.end() || expert_idx < 0 || expert_idx >= it->second.num_experts) return;
  for_each_entries(it->second, expert_idx, [&](const LinearEntries& entries) {
    if (entries.payload() != nullptr) impl_->raw->drop(*entries.payload());
    if (const RawTensor* scale = entries[TensorRole::kWeightScale]) impl_->raw->drop(*scale);
  });
}

}  // namespace halfbyte
