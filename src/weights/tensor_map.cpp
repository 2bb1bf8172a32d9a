// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "checkpoint/module_path.h"

namespace halfbyte {
namespace {

// No model comes near; a wrong number must not size an allocation.
constexpr std::int64_t kMaxExperts = 16384;
constexpr std::int64_t kMaxLayers = 16384;

constexpr std::array<std::string_view, kNumLinearRoles> kRoleNames = {"weight",
                                                                      "weight_packed",
                                                                      "weight_scale",
                                                                      "weight_scale_2",
                                                                      "weight_global_scale",
                                                                      "weight_scale_inv",
                                                                      "input_scale",
                                                                      "input_global_scale",
                                                                      "pre_quant_scale",
                                                                      "bias"};

// Parts of a wrapper model that are not text.
constexpr std::array<std::string_view, 12> kUnusedParts = {
    "visual",       "vision_tower",          "vision_model",  "vision_embed_tokens",
    "mm_projector", "multi_modal_projector", "embed_vision",  "embed_audio",
    "audio_tower",  "audio_model",           "sound_encoder", "image_newline"};

/// Takes "name." off the front of `rest`; empty when there is no dot.
std::string_view take_component(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view component = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return component;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Projection> parse_projection(std::string_view name) {
  if (name == "gate_proj" || name == "w1") return Projection::kGate;
  if (name == "up_proj" || name == "w3") return Projection::kUp;
  if (name == "down_proj" || name == "w2") return Projection::kDown;
  return std::nullopt;
}

bool is_mlp_name(std::string_view name) {
  return name == "mlp" || name == "block_sparse_moe" || name == "feed_forward" || name == "ffn" ||
         name == "mixer" || name == "moe";
}

/// "mixer" is whatever its layer is; what is below it tells.
std::string_view mixer_alias(std::string_view below) {
  for (const std::string_view part : {"experts", "shared_experts", "gate", "gate_proj", "up_proj",
                                      "down_proj", "fc1_latent_proj", "fc2_latent_proj"}) {
    if (below == part) return "mlp";
  }
  for (const std::string_view part :
       {"q_proj", "k_proj", "v_proj", "o_proj", "k_scale", "v_scale"}) {
    if (below == part) return "self_attn";
  }
  return "mixer";
}

std::string_view block_alias(std::string_view block, std::string_view below) {
  if (block == "mixer") return mixer_alias(below.substr(0, below.find('.')));
  if (is_mlp_name(block)) return "mlp";
  if (block == "attn") return "self_attn";
  return block;
}

std::string canonical_in_layer(std::string_view layer, std::string_view rest) {
  const std::string_view block = take_component(rest);
  if (rest.empty()) return fmt::format("layers.{}.{}", layer, block);
  const std::string_view alias = block_alias(block, rest);
  std::string name = fmt::format("layers.{}.{}", layer, alias);
  const bool is_mlp = alias == "mlp";
  if (is_mlp && rest == "e_score_correction_bias") name += ".gate";  // MiniMax
  while (!rest.empty()) {
    std::string_view component = take_component(rest);
    if (is_mlp && component == "router") component = "gate";
    if (is_mlp && component.size() == 2 && component[0] == 'w') {
      if (const auto projection = parse_projection(component)) {
        component = projection_name(*projection);
      }
    }
    name += '.';
    name += component;
  }
  return name;
}

/// A name below "...experts.".
struct ExpertName {
  std::int64_t layer = 0;
  std::int64_t expert = -1;  // -1: a stack of all experts
  Projection projection = Projection::kGate;
  bool is_gate_up = false;  // of a stack
  TensorRole role = TensorRole::kOther;
};

/// "12.gate_proj.weight"
bool parse_one_expert(std::string_view rest, ExpertName& name) {
  const auto expert = parse_number(take_component(rest));
  const auto projection = parse_projection(take_component(rest));
  if (!expert || !projection) return false;
  name.expert = *expert;
  name.projection = *projection;
  name.role = parse_role(rest);
  return name.role != TensorRole::kOther;
}

/// "gate_up_proj", "gate_up_proj_weight_scale", "gate_up_proj.weight_scale", "gate_up_proj_blocks"
bool parse_stack(std::string_view rest, ExpertName& name) {
  constexpr std::string_view kGateUp = "gate_up_proj", kDown = "down_proj";
  name.is_gate_up = rest.starts_with(kGateUp);
  if (!name.is_gate_up && !rest.starts_with(kDown)) return false;
  rest.remove_prefix(name.is_gate_up ? kGateUp.size() : kDown.size());
  if (rest.empty() || rest == "_blocks") {
    name.role = TensorRole::kWeight;
  } else if (rest == "_scales") {
    name.role = TensorRole::kWeightScale;
  } else if (rest[0] == '.' || rest[0] == '_') {
    name.role = parse_role(rest.substr(1));
  }
  return name.role != TensorRole::kOther;
}

/// Nothing when `name` (without prefix) is not a routed expert's.
std::optional<ExpertName> parse_expert_name(std::string_view name) {
  if (take_component(name) != "layers") return std::nullopt;
  const auto layer = parse_number(take_component(name));
  if (!layer || !is_mlp_name(take_component(name)) || take_component(name) != "experts") {
    return std::nullopt;
  }
  ExpertName parsed;
  parsed.layer = *layer;
  const bool good = !name.empty() && name[0] >= '0' && name[0] <= '9'
                        ? parse_one_expert(name, parsed)
                        : parse_stack(name, parsed);
  return good ? std::optional(parsed) : std::nullopt;
}

bool is_unused(std::string_view name) {
  std::string_view rest = name;
  const std::string_view first = take_component(rest);
  return std::find(kUnusedParts.begin(), kUnusedParts.end(), first) != kUnusedParts.end() ||
         name.ends_with("rotary_emb.inv_freq") || name.ends_with("position_ids");
}

/// Beyond the model's layers, or a draft model beside them.
bool is_draft(std::string_view name, std::int64_t num_hidden_layers) {
  const std::string_view first = take_component(name);
  if (first == "mtp") return true;
  if (first != "layers" || num_hidden_layers <= 0) return false;
  const auto layer = parse_number(take_component(name));
  return layer && *layer >= num_hidden_layers;
}

Status twice(const RawTensor& a, const RawTensor& b) {
  return Status(StatusCode::kCorruptData,
                fmt::format("{} and {} are the same tensor under two names", a.name, b.name));
}

Status put(LinearEntries& entries, TensorRole role, const RawTensor& tensor) {
  const RawTensor*& slot = entries.slot(role);
  if (slot != nullptr) return twice(*slot, tensor);
  slot = &tensor;
  return {};
}

Status add_expert(const ExpertName& name, const RawTensor& tensor, TensorMap& map) {
  if (name.expert >= kMaxExperts || name.layer >= kMaxLayers) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: layer or expert number beyond {}", tensor.name, kMaxExperts));
  }
  ExpertTensors& layer = map.experts[name.layer];
  if (name.expert < 0) {
    return put(name.is_gate_up ? layer.stacked_gate_up : layer.stacked_down, name.role, tensor);
  }
  const auto expert = static_cast<std::size_t>(name.expert);
  if (layer.experts.size() <= expert) layer.experts.resize(expert + 1);
  return put(layer.experts[expert][static_cast<std::size_t>(name.projection)], name.role, tensor);
}

Status add_plain(const RawTensor& tensor, TensorMap& map) {
  std::string name = canonical_name(tensor.name);
  const TensorRole role = parse_role(std::string_view(name).substr(name.rfind('.') + 1));
  if (role != TensorRole::kOther) {
    ModuleTensors& module = map.modules[std::string(parent_path(name))];
    module.raw_path = parent_path(tensor.name);
    HALFBYTE_RETURN_IF_ERROR(put(module.entries, role, tensor));
  }
  const auto [it, is_new] = map.plain.try_emplace(std::move(name), &tensor);
  return is_new ? Status() : twice(*it->second, tensor);
}

Status add_draft(const RawTensor& tensor, TensorMap& map) {
  map.unused.push_back(&tensor);
  const std::string name = canonical_name(tensor.name);
  const TensorRole role = parse_role(std::string_view(name).substr(name.rfind('.') + 1));
  if (role == TensorRole::kOther) return {};
  return put(map.drafts[std::string(parent_path(name))], role, tensor);
}

Status add_tensor(const RawTensor& tensor, std::int64_t num_hidden_layers, TensorMap& map) {
  const std::string_view bare = strip_prefix(tensor.name);
  if (is_unused(bare)) {
    map.unused.push_back(&tensor);
    return {};
  }
  if (is_draft(bare, num_hidden_layers)) return add_draft(tensor, map);
  if (const auto name = parse_expert_name(bare)) return add_expert(*name, tensor, map);
  return add_plain(tensor, map);
}

}  // namespace

TensorRole parse_role(std::string_view name) {
  for (std::size_t i = 0; i < kRoleNames.size(); ++i) {
    if (name == kRoleNames[i]) return static_cast<TensorRole>(i);
  }
  return TensorRole::kOther;
}

std::string_view role_name(TensorRole role) {
  return role == TensorRole::kOther ? "?" : kRoleNames[static_cast<std::size_t>(role)];
}

std::string_view projection_name(Projection projection) {
  constexpr std::array<std::string_view, kNumProjections> kNames = {"gate_proj", "up_proj",
                                                                    "down_proj"};
  return kNames[static_cast<std::size_t>(projection)];
}

const RawTensor* LinearEntries::payload() const {
  const RawTensor* packed = (*this)[TensorRole::kWeightPacked];
  return packed != nullptr ? packed : (*this)[TensorRole::kWeight];
}

bool LinearEntries::empty() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto* t) { return t == nullptr; });
}

std::string canonical_name(std::string_view raw_name) {
  const std::string_view bare = strip_prefix(raw_name);
  if (bare.starts_with("head.")) return "lm_" + std::string(bare);  // DeepSeek-V4
  std::string_view rest = bare;
  if (take_component(rest) != "layers") return std::string(bare);
  const std::string_view layer = take_component(rest);
  return rest.empty() ? std::string(bare) : canonical_in_layer(layer, rest);
}

std::string_view short_name(const RawTensor& tensor) {
  const std::size_t last = tensor.name.rfind('.');
  if (last == std::string_view::npos || last == 0) return tensor.name;
  const std::size_t before = tensor.name.rfind('.', last - 1);
  return before == std::string_view::npos ? tensor.name : tensor.name.substr(before + 1);
}

Result<TensorMap> build_tensor_map(const RawTensors& raw, std::int64_t num_hidden_layers) {
  TensorMap map;
  for (const RawTensor& tensor : raw.tensors())
    HALFBYTE_RETURN_IF_ERROR(add_tensor(tensor, num_hidden_layers, map));
  return map;
}

}  // namespace halfbyte
