// SPDX-License-Identifier: Apache-2.0
#include "weights/expert_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace halfbyte {
namespace {

using ExpertKinds = std::array<LinearKind, kNumProjections>;

bool any_has_gate(const ExpertTensors& tensors) {
  return std::any_of(tensors.experts.begin(), tensors.experts.end(), [](const ExpertEntries& e) {
    return !e[static_cast<std::size_t>(Projection::kGate)].empty();
  });
}

/// Kinds of one expert; nothing when a fault was found.
bool classify_expert(const ExpertLayer& layer,
                     std::int64_t expert_idx,
                     const ModelConfig& config,
                     const RawTensors& raw,
                     Findings& findings,
                     ExpertKinds& kinds) {
  static const ExpertEntries nothing;
  const auto at = static_cast<std::size_t>(expert_idx);
  const ExpertEntries& entries =
      at < layer.tensors->experts.size() ? layer.tensors->experts[at] : nothing;
  bool good = true;
  for (const Projection projection : kProjections) {
    if (!layer.has(projection)) continue;
    const LinearEntries& linear = entries[static_cast<std::size_t>(projection)];
    if (linear.payload() == nullptr) {
      findings.add_expert(layer.layer_idx, expert_idx,
                          fmt::format("{}.weight: absent", projection_name(projection)),
                          StatusCode::kNotFound);
      good = false;
      continue;
    }
    auto kind = classify_linear(linear, config.quant);
    if (!kind.ok()) {
      findings.add_expert(
          layer.layer_idx, expert_idx,
          fmt::format("{}{}", kind.status().message(), in_file(*linear.payload(), raw)),
          kind.status().code());
      good = false;
    } else {
      kinds[static_cast<std::size_t>(projection)] = *kind;
    }
  }
  return good;
}

bool same_kind(const LinearKind& a, const LinearKind& b) {
  return a.linear_class == b.linear_class && a.dialect == b.dialect;
}

/// The class that most experts of the layer have under `projection`.
LinearKind usual_kind(const std::vector<ExpertKinds>& kinds, std::size_t projection) {
  std::map<std::pair<LinearClass, const Dialect*>, std::size_t> counts;
  LinearKind usual = kinds[0][projection];
  std::size_t most = 0;
  for (const ExpertKinds& expert : kinds) {
    const LinearKind& kind = expert[projection];
    const std::size_t count = ++counts[{kind.linear_class, kind.dialect}];
    if (count > most) {
      most = count;
      usual = kind;
    }
  }
  return usual;
}

void check_shape(const ExpertLayer& layer,
                 std::int64_t expert_idx,
                 Projection projection,
                 const LinearKind& kind,
                 const ModelConfig& config,
                 Findings& findings) {
  const LinearKind& usual = layer.kind(projection);
  const bool is_down = projection == Projection::kDown;
  const std::int64_t stated_rows = is_down ? config.hidden_size : config.moe_intermediate_size;
  const std::int64_t stated_cols = is_down ? config.moe_intermediate_size : config.hidden_size;
  const bool is_stated = config.activation_stated && stated_rows > 0 && stated_cols > 0 &&
                         (config.architecture == "Qwen3MoeForCausalLM" ||
                          config.architecture == "DeepseekV3ForCausalLM");
  const std::int64_t rows = is_stated ? stated_rows : usual.rows;
  const std::int64_t cols = is_stated ? stated_cols : usual.cols;
  if (kind.rows == rows && kind.cols == cols) return;
  findings.add_expert(layer.layer_idx, expert_idx,
                      fmt::format("{}.weight: {} x {} values, want {} x {}",
                                  projection_name(projection), kind.rows, kind.cols, rows, cols));
}

/// Sets the layer's kinds; experts of another class or shape are findings.
void settle_kinds(ExpertLayer& layer,
                  const std::vector<ExpertKinds>& kinds,
                  const ModelConfig& config,
                  Findings& findings) {
  for (const Projection projection : kProjections) {
    if (!layer.has(projection)) continue;
    const auto p = static_cast<std::size_t>(projection);
    layer.kinds[p] = usual_kind(kinds, p);
    for (std::size_t expert = 0; expert < kinds.size(); ++expert) {
      const auto expert_idx = static_cast<std::int64_t>(expert);
      if (!same_kind(kinds[expert][p], layer.kinds[p])) {
        findings.add_expert(
            layer.layer_idx, expert_idx,
            fmt::format("{}: is {}, other experts of the layer are {}; one layer's experts must "
                        "be stored alike",
                        projection_name(projection),
                        linear_class_name(kinds[expert][p].linear_class),
                        linear_class_name(layer.kinds[p].linear_class)),
            StatusCode::kUnsupported);
      } else {
        check_shape(layer, expert_idx, projection, kinds[expert][p], config, findings);
      }
    }
  }
}

void check_gate(const ExpertLayer& layer, const ModelConfig& config, Findings& findings) {
  if (!config.activation_stated || config.activation.gated() == layer.gated) return;
  findings.add(layer.gated
                   ? fmt::format("layer {}: the experts have a gate_proj, but the config's "
                                 "activation (relu2) takes none",
                                 layer.layer_idx)
                   : fmt::format("layer {}: the experts have no gate_proj, but the config's "
                                 "activation needs one",
                                 layer.layer_idx));
}

void build_listed(ExpertLayer& layer,
                  const ModelConfig& config,
                  const RawTensors& raw,
                  Findings& findings) {
  const auto in_files = static_cast<std::int64_t>(layer.tensors->experts.size());
  layer.num_experts = config.num_experts > 0 ? config.num_experts : in_files;
  layer.gated = any_has_gate(*layer.tensors);
  check_gate(layer, config, findings);
  for (std::int64_t expert = layer.num_experts; expert < in_files; ++expert) {
    findings.add_expert(
        layer.layer_idx, expert,
        fmt::format("in the files, but the config has {} experts", layer.num_experts));
  }
  std::vector<ExpertKinds> kinds(static_cast<std::size_t>(layer.num_experts));
  bool good = layer.num_experts > 0;
  for (std::int64_t expert = 0; expert < layer.num_experts; ++expert) {
    good &= classify_expert(layer, expert, config, raw, findings,
                            kinds[static_cast<std::size_t>(expert)]);
  }
  if (good) settle_kinds(layer, kinds, config, findings);
}

void build_stacked(ExpertLayer& layer,
                   const ModelConfig& config,
                   const RawTensors& raw,
                   Findings& findings) {
  layer.num_experts = config.num_experts;
  layer.gated = !config.activation_stated || config.activation.gated();
  layer.form = stack_form(config);
  for (const Projection projection : kProjections) {
    if (!layer.has(projection)) continue;
    const LinearEntries& entries = projection == Projection::kDown ? layer.tensors->stacked_down
                                                                   : layer.tensors->stacked_gate_up;
    auto kind = classify_stack(entries, projection, layer.form, layer.gated, config);
    if (kind.ok()) {
      layer.kinds[static_cast<std::size_t>(projection)] = *kind;
    } else {
      findings.add(
          fmt::format("layer {}: {}{}", layer.layer_idx, kind.status().message(),
                      entries.payload() == nullptr ? "" : in_file(*entries.payload(), raw)),
          kind.status().code());
    }
  }
}

}  // namespace

std::optional<LinearClass> ExpertLayer::common_class() const {
  const LinearClass up = kind(Projection::kUp).linear_class;
  const bool alike = kind(Projection::kDown).linear_class == up &&
                     (!gated || kind(Projection::kGate).linear_class == up);
  return alike ? std::optional(up) : std::nullopt;
}

ExpertLayer build_expert_layer(std::int64_t layer_idx,
                               const ExpertTensors& tensors,
                               const ModelConfig& config,
                               const RawTensors& raw,
                               Findings& findings) {
  ExpertLayer layer;
  layer.layer_idx = layer_idx;
  layer.tensors = &tensors;
  const std::size_t before = findings.count();
  if (tensors.is_stacked()) {
    build_stacked(layer, config, raw, findings);
  } else {
    build_listed(layer, config, raw, findings);
  }
  layer.is_good = findings.count() == before;
  if (layer.is_good && layer.common_class() == LinearClass::kNvfp4) {
    read_global_scales(layer, raw, findings);
  }
  return layer;
}

}  // namespace halfbyte
