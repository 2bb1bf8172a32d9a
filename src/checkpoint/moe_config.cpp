// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "checkpoint/config_reader.h"

namespace halfbyte {
namespace {

using nlohmann::json;

/// The parameters of a clamped SwiGLU, as configs spell them.
struct SwigluParameters {
  std::optional<double> alpha, beta, limit;
  bool any() const { return alpha || beta || limit; }
};

SwigluParameters read_swiglu_parameters(ConfigReader& reader) {
  SwigluParameters parameters;
  reader.optional({"swiglu_alpha", "alpha"}, parameters.alpha);
  reader.optional({"swiglu_beta", "beta"}, parameters.beta);
  reader.optional({"swiglu_limit"}, parameters.limit);
  return parameters;
}

/// Nothing when no activation of that name runs.
std::optional<ActivationFunction> parse_activation(std::string_view name, bool has_parameters) {
  if (name == "relu2" || name == "squared_relu") return ActivationFunction::kRelu2;
  if (name == "gelu_tanh" || name == "gelu_pytorch_tanh") return ActivationFunction::kGegluTanh;
  if (name == "swigluoai") return ActivationFunction::kSwigluClamped;
  if (name != "silu" && name != "swiglu") return std::nullopt;
  return has_parameters ? ActivationFunction::kSwigluClamped : ActivationFunction::kSwiglu;
}

void set_clamped(ConfigReader& reader,
                 const SwigluParameters& stated,
                 bool is_oai,
                 ActivationSpec& activation) {
  activation.alpha = static_cast<float>(stated.alpha.value_or(is_oai ? 1.702 : 1.0));
  activation.beta = static_cast<float>(stated.beta.value_or(is_oai || stated.alpha ? 1.0 : 0.0));
  if (stated.limit || is_oai) activation.limit = static_cast<float>(stated.limit.value_or(7.0));
  if (!(activation.limit > 0.0F)) {
    reader.fail(fmt::format("swiglu_limit: want > 0, got {}", activation.limit));
  }
}

/// hidden_act and its parameters under the names of nvfp4-moe 6.
void read_activation(ConfigReader& reader, ModelConfig& config) {
  std::string name;
  reader.optional({"hidden_act", "hidden_activation", "mlp_hidden_act"}, name);
  if (name.empty()) {
    reader.fail("no 'hidden_act'");
    return;
  }
  config.activation_stated = true;
  const SwigluParameters parameters = read_swiglu_parameters(reader);
  const auto function = parse_activation(name, parameters.any());
  if (!function) {
    reader.unsupported(fmt::format(
        "hidden_act '{}'; supported: silu, swiglu, swigluoai, relu2, squared_relu, gelu_tanh, "
        "gelu_pytorch_tanh",
        name));
    return;
  }
  config.activation.function = *function;
  if (*function == ActivationFunction::kSwigluClamped) {
    set_clamped(reader, parameters, name == "swigluoai", config.activation);
  } else if (parameters.any()) {
    reader.unsupported(fmt::format("hidden_act '{}' with alpha, beta or limit", name));
  }
}

void read_deepseek_router(ConfigReader& reader, ModelConfig& config) {
  std::string topk_method = "noaux_tc", scoring = "sigmoid";
  reader.optional({"topk_method"}, topk_method);
  reader.optional({"scoring_func"}, scoring);
  if (topk_method != "noaux_tc") {
    reader.unsupported(fmt::format("topk_method '{}'; supported: noaux_tc", topk_method));
  }
  if (scoring != "sigmoid") {
    reader.unsupported(fmt::format("scoring_func '{}'; supported: sigmoid", scoring));
  }
  std::int64_t num_groups = 1, topk_group = 1;
  reader.optional({"n_group"}, num_groups);
  reader.optional({"topk_group"}, topk_group);
  RouterSpec& router = config.router;
  router.num_groups = static_cast<int>(std::max<std::int64_t>(num_groups, 1));
  router.topk_group = static_cast<int>(std::max<std::int64_t>(topk_group, 1));
  router.method = router.num_groups > 1 ? RoutingMethod::kGroupedTop2 : RoutingMethod::kSigmoidBias;
  router.renormalize = true;
  reader.optional({"norm_topk_prob"}, router.renormalize);
  double factor = 1.0;
  reader.optional({"routed_scaling_factor"}, factor);
  router.routed_scaling_factor = static_cast<float>(factor);
  if (router.num_groups == 1) return;
  if (config.num_experts % router.num_groups != 0 || config.num_experts / router.num_groups < 2 ||
      router.topk_group > router.num_groups) {
    reader.fail(fmt::format(
        "n_group {} and topk_group {}: want groups of at least 2 of the {} experts, and no more "
        "kept than there are",
        router.num_groups, router.topk_group, config.num_experts));
  }
}

void read_softmax_router(ConfigReader& reader, ModelConfig& config) {
  bool renormalize = false;
  reader.optional({"norm_topk_prob"}, renormalize);
  config.router.method = renormalize ? RoutingMethod::kSoftmaxRenorm : RoutingMethod::kSoftmax;
  config.router.renormalize = renormalize;
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  reader.required({"num_experts", "num_local_experts", "n_routed_experts"}, config.num_experts);
  reader.required({"num_experts_per_tok", "num_experts_per_token", "top_k_experts"},
                  config.num_experts_per_tok);
  if (reader.strict()) {
    reader.required({"moe_intermediate_size"}, config.moe_intermediate_size);
  } else {
    config.moe_intermediate_size = config.intermediate_size;  // MiniMax, Mixtral
    reader.optional({"moe_intermediate_size"}, config.moe_intermediate_size);
  }
  reader.optional({"n_shared_experts"}, config.num_shared_experts);
  if (reader.strict() && config.num_experts_per_tok > config.num_experts) {
    reader.fail(fmt::format("num_experts_per_tok is {} of {} experts", config.num_experts_per_tok,
                            config.num_experts));
  }
}

/// Which layers have routed experts, and how many drafts follow.
void read_layer_kinds(ConfigReader& reader, ModelConfig& config) {
  reader.optional({"first_k_dense_replace"}, config.first_k_dense_replace);
  reader.optional({"decoder_sparse_step"}, config.decoder_sparse_step);
  reader.optional({"mlp_only_layers"}, config.mlp_only_layers);
  const json* freq = reader.find({"moe_layer_freq"});
  if (freq == nullptr || !freq->is_array()) {
    reader.optional({"moe_layer_freq"}, config.moe_layer_freq);
  } else {
    reader.unsupported("moe_layer_freq as a list");
  }
  if (config.decoder_sparse_step < 1 || config.moe_layer_freq < 1) {
    reader.fail("decoder_sparse_step and moe_layer_freq: want >= 1");
    // A config that is only looked at goes on from here, and is_moe_layer divides by both.
    config.decoder_sparse_step = config.moe_layer_freq = 1;
  }
  reader.optional(
      {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"},
      config.num_draft_layers);
}

}  // namespace

void read_moe(ConfigReader& reader, ModelConfig& config) {
  read_activation(reader, config);
  read_experts(reader, config);
  read_layer_kinds(reader, config);
  const bool sigmoid = config.kv_lora_rank > 0 || reader.find({"routed_scaling_factor"}) != nullptr;
  if (sigmoid) {
    read_deepseek_router(reader, config);
  } else {
    read_softmax_router(reader, config);
  }
}

}  // namespace halfbyte
