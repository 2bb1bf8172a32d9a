// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "formats/convert.h"
#include "weights/expert_layer.h"

namespace halfbyte {
namespace {

constexpr float kMaxInputScale = 1e12F;
constexpr std::string_view kInputScaleRemedy =
    "absent; use --moe-activation-mode w4a4_dynamic or w4a16";

std::int64_t element_count(const RawTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.shape)
    count *= dim;
  return count;
}

/// Scalar of (expert, projection) of a stack: [], [1], [E], [E, 1] or [E, 2] (gate, up).
Result<float> read_stacked_scalar(const RawTensor& tensor,
                                  std::int64_t num_experts,
                                  std::int64_t expert_idx,
                                  Projection projection,
                                  bool is_reciprocal) {
  const auto& shape = tensor.shape;
  const bool one = shape.empty() || (shape.size() == 1 && shape[0] == 1);
  const bool each =
      (shape.size() == 1 || (shape.size() == 2 && shape[1] == 1)) && shape[0] == num_experts;
  const bool pairs = shape.size() == 2 && shape[0] == num_experts && shape[1] == 2 &&
                     projection != Projection::kDown;
  if (!one && !each && !pairs) {
    return Status(
        StatusCode::kCorruptData,
        fmt::format(
            "{}: shape {}, want [], [1], [{}], [{}, 1]{}", short_name(tensor), format_shape(shape),
            num_experts, num_experts,
            projection == Projection::kDown ? "" : fmt::format(" or [{}, 2]", num_experts)));
  }
  std::int64_t at = one ? 0 : expert_idx;
  if (pairs) at = expert_idx * 2 + (projection == Projection::kUp ? 1 : 0);
  const auto width = static_cast<std::size_t>(dtype_bytes(tensor.dtype));
  RawTensor element = tensor;
  element.shape = {};
  element.bytes = tensor.bytes.subspan(static_cast<std::size_t>(at) * width, width);
  return read_scalar(element, is_reciprocal);
}

const RawTensor* scalar_tensor(const ExpertLayer& layer,
                               std::int64_t expert_idx,
                               Projection projection,
                               TensorRole role) {
  const ExpertTensors& tensors = *layer.tensors;
  if (tensors.is_stacked()) {
    return projection == Projection::kDown ? tensors.stacked_down[role]
                                           : tensors.stacked_gate_up[role];
  }
  return tensors
      .experts[static_cast<std::size_t>(expert_idx)][static_cast<std::size_t>(projection)][role];
}

Result<float> read_expert_scalar(const ExpertLayer& layer,
                                 const RawTensor& tensor,
                                 std::int64_t expert_idx,
                                 Projection projection) {
  const Dialect* dialect = layer.kind(projection).dialect;
  const bool reciprocal = dialect != nullptr && dialect->scalars_are_reciprocal;
  if (!layer.tensors->is_stacked()) return read_scalar(tensor, reciprocal);
  return read_stacked_scalar(tensor, layer.num_experts, expert_idx, projection, reciprocal);
}

std::string scalar_label(Projection projection, TensorRole role) {
  return fmt::format("{}.{}", projection_name(projection), role_name(role));
}

/// One input scale; a fault goes to `absent` or `bad`.
float read_input_scale(const ExpertLayer& layer,
                       std::int64_t expert_idx,
                       Projection projection,
                       const RawTensors& raw,
                       Findings& absent,
                       Findings& bad) {
  const Dialect* dialect = layer.kind(projection).dialect;
  const TensorRole role = dialect != nullptr ? dialect->input_scale : TensorRole::kInputScale;
  const RawTensor* tensor = scalar_tensor(layer, expert_idx, projection, role);
  const std::string label = scalar_label(projection, role);
  if (tensor == nullptr) {
    absent.add_expert(layer.layer_idx, expert_idx, fmt::format("{}: {}", label, kInputScaleRemedy),
                      StatusCode::kNotFound);
    return 0.0F;
  }
  auto value = read_expert_scalar(layer, *tensor, expert_idx, projection);
  if (!value.ok()) {
    bad.add_expert(layer.layer_idx, expert_idx, value.status().message());
    return 0.0F;
  }
  if (!is_good_scale(*value) || *value > kMaxInputScale) {
    bad.add_expert(layer.layer_idx, expert_idx,
                   fmt::format("{}: value {}, want finite, > 0 and <= 1e12{}", label, *value,
                               in_file(*tensor, raw)));
  }
  return *value;
}

}  // namespace

Result<float> read_scalar(const RawTensor& tensor, bool is_reciprocal) {
  if (!is_wide_float(tensor.dtype) || tensor.shape.size() > 1 || element_count(tensor) != 1) {
    return Status(
        StatusCode::kCorruptData,
        fmt::format("{}: {} {}, want one F32, BF16 or F16 value of shape [] or [1]",
                    short_name(tensor), dtype_name(tensor.dtype), format_shape(tensor.shape)));
  }
  float value = 0.0F;
  widen_to_f32(tensor.dtype, tensor.bytes.data(), 1, &value);
  return is_reciprocal ? 1.0F / value : value;
}

bool is_good_scale(float value) {
  return std::isfinite(value) && value > 0.0F;
}

std::string in_file(const RawTensor& tensor, const RawTensors& raw) {
  return fmt::format(" ({})", raw.file_name(tensor));
}

void read_global_scales(ExpertLayer& layer, const RawTensors& raw, Findings& findings) {
  layer.global_scales.resize(static_cast<std::size_t>(layer.num_experts));
  for (std::int64_t expert = 0; expert < layer.num_experts; ++expert) {
    for (const Projection projection : kProjections) {
      if (!layer.has(projection)) continue;
      const TensorRole role = layer.kind(projection).dialect->global_scale;
      const RawTensor* tensor = scalar_tensor(layer, expert, projection, role);
      if (tensor == nullptr) {
        findings.add_expert(
            layer.layer_idx, expert,
            scalar_label(projection, role) + ": absent; without it the weights cannot be decoded");
        continue;
      }
      auto value = read_expert_scalar(layer, *tensor, expert, projection);
      if (!value.ok()) {
        findings.add_expert(layer.layer_idx, expert, value.status().message());
        continue;
      }
      layer.global_scales[static_cast<std::size_t>(expert)][static_cast<std::size_t>(projection)] =
          *value;
      if (is_good_scale(*value)) continue;
      const bool inverse = layer.kind(projection).dialect->scalars_are_reciprocal;
      findings.add_expert(
          layer.layer_idx, expert,
          fmt::format("{}: {} {}, want finite and > 0{}", scalar_label(projection, role),
                      inverse ? "its inverse is" : "value", *value, in_file(*tensor, raw)));
    }
  }
}

Result<ExpertInputScales> read_input_scales(const ExpertLayer& layer, const RawTensors& raw) {
  ExpertInputScales scales;
  Findings absent, bad;
  scales.gate_up.shape = {layer.num_experts, layer.gated ? 2 : 1};
  scales.down.shape = {layer.num_experts};
  for (std::int64_t expert = 0; expert < layer.num_experts; ++expert) {
    for (const Projection projection : kProjections) {
      if (!layer.has(projection)) continue;
      auto& values = projection == Projection::kDown ? scales.down.values : scales.gate_up.values;
      values.push_back(read_input_scale(layer, expert, projection, raw, absent, bad));
    }
  }
  HALFBYTE_RETURN_IF_ERROR(bad.to_status());
  HALFBYTE_RETURN_IF_ERROR(absent.to_status());
  return scales;
}

std::int64_t count_input_scales(const ExpertLayer& layer) {
  std::int64_t count = 0;
  for (std::int64_t expert = 0; expert < layer.num_experts; ++expert) {
    bool all = true;
    for (const Projection projection : kProjections) {
      const Dialect* dialect = layer.kind(projection).dialect;
      all = all && (!layer.has(projection) ||
                    (dialect != nullptr &&
                     scalar_tensor(layer, expert, projection, dialect->input_scale) != nullptr));
    }
    count += all ? 1 : 0;
  }
  return count;
}

}  // namespace halfbyte
