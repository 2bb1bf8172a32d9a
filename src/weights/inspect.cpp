// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

/// The classes of the linears below `prefix`, each once: "NVFP4" or "FP8 per tensor + dense".
std::string classes_below(const CheckpointWeights::Impl& impl, std::string_view prefix) {
  std::vector<std::string_view> names;
  for (const auto& [path, kind] : impl.kinds) {
    if (!path.starts_with(prefix)) continue;
    const std::string_view name = class_name(kind, *impl.map.modules.at(path).entries.payload());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " + "));
}

std::string experts_of(const ExpertLayer& layer) {
  const auto common = layer.common_class();
  std::string text = fmt::format("{} x {}", layer.num_experts,
                                 common ? linear_class_name(*common) : "mixed classes");
  const Dialect* dialect = layer.kind(Projection::kDown).dialect;
  if (dialect != nullptr) text += fmt::format(" ({})", dialect->name);
  if (layer.tensors->is_stacked()) text += ", stacked";
  if (!layer.gated) text += ", not gated";
  return text;
}

std::string kv_scales_of(const CheckpointWeights::Impl& impl, std::int64_t layer_idx) {
  const KvScaleTensors scales = find_kv_scales(impl, layer_idx);
  if (scales.key == nullptr && scales.value == nullptr) return {};
  if (scales.key == scales.value) return "one for k and v";
  if (scales.key == nullptr) return "v only";
  return scales.value == nullptr ? "k only" : "k and v";
}

LayerSummary summarize_layer(const CheckpointWeights::Impl& impl, std::int64_t layer_idx) {
  const std::string prefix = fmt::format("layers.{}.", layer_idx);
  LayerSummary summary;
  summary.layer_idx = layer_idx;
  summary.kv_scales = kv_scales_of(impl, layer_idx);
  summary.attention = classes_below(impl, prefix + "self_attn.");
  if (summary.attention.empty()) summary.attention = classes_below(impl, prefix + "mixer.");
  summary.router = classes_below(impl, prefix + "mlp.gate");
  summary.shared_experts = classes_below(impl, prefix + "mlp.shared_expert");
  const auto experts = impl.layers.find(layer_idx);
  if (experts != impl.layers.end()) {
    summary.experts = experts_of(experts->second);
  } else {
    summary.dense_mlp = classes_below(impl, prefix + "mlp.");
    summary.router.clear();
  }
  return summary;
}

std::vector<std::pair<std::string, std::uint64_t>> count_bytes(
    const CheckpointWeights::Impl& impl) {
  std::map<std::string, std::uint64_t> bytes;
  std::uint64_t counted = 0;
  const auto add = [&](std::string_view name, const LinearEntries& entries) {
    for (const RawTensor* tensor : entries.tensors) {
      if (tensor == nullptr) continue;
      bytes[std::string(name)] += tensor->bytes.size();
      counted += tensor->bytes.size();
    }
  };
  for (const auto& [path, kind] : impl.kinds) {
    add(linear_class_name(kind.linear_class), impl.map.modules.at(path).entries);
  }
  for (const auto& [layer_idx, layer] : impl.layers) {
    const std::string_view name = linear_class_name(layer.kind(Projection::kDown).linear_class);
    add(name, layer.tensors->stacked_gate_up);
    add(name, layer.tensors->stacked_down);
    for (const ExpertEntries& expert : layer.tensors->experts) {
      for (const LinearEntries& entries : expert)
        add(name, entries);
    }
  }
  bytes["other"] = impl.raw->total_bytes() - counted;
  return {bytes.begin(), bytes.end()};
}

void count_ratios(const ExpertLayer& layer, std::array<std::int64_t, 5>& histogram) {
  constexpr std::array<double, 3> kBounds = {1.5, 2.0, 4.0};
  for (const auto& scales : layer.global_scales) {
    const double gate = scales[0], up = scales[1];
    const double ratio = std::max(gate / up, up / gate);
    const auto bucket =
        ratio == 1.0
            ? 0
            : 1 + (std::upper_bound(kBounds.begin(), kBounds.end(), ratio) - kBounds.begin());
    ++histogram[static_cast<std::size_t>(bucket)];
  }
}

}  // namespace

CheckpointSummary CheckpointWeights::summarize() const {
  const Impl& impl = *impl_;
  CheckpointSummary summary;
  for (std::int64_t layer = 0; layer < impl.config.num_hidden_layers; ++layer) {
    summary.layers.push_back(summarize_layer(impl, layer));
  }
  summary.bytes_by_class = count_bytes(impl);
  for (const RawTensor* tensor : unused_tensors(impl)) {
    summary.unused_tensors.emplace_back(tensor->name);
  }
  summary.drafts = impl.drafts;
  summary.notices = impl.notice_log->lines();
  summary.num_tensors = static_cast<std::int64_t>(impl.raw->tensors().size());
  for (const auto& [layer_idx, layer] : impl.layers) {
    summary.num_experts += layer.num_experts;
    summary.num_experts_with_input_scale += layer.is_good ? count_input_scales(layer) : 0;
    if (layer.gated) count_ratios(layer, summary.gate_up_ratio_histogram);
  }
  if (impl.num_scale_bytes > 0) {
    summary.saturated_block_scale_share =
        static_cast<double>(impl.num_saturated_bytes) / static_cast<double>(impl.num_scale_bytes);
  }
  return summary;
}

}  // namespace halfbyte
