// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

namespace halfbyte {
namespace {

Result<DenseMlp> load_mlp(LayerLoader& loader, const std::string& module, std::int64_t width) {
  const std::int64_t hidden = loader.config().hidden_size;
  DenseMlp mlp;
  HALFBYTE_ASSIGN_OR_RETURN(mlp.gate, loader.linear(module + ".gate_proj", width, hidden));
  HALFBYTE_ASSIGN_OR_RETURN(mlp.up, loader.linear(module + ".up_proj", width, hidden));
  HALFBYTE_ASSIGN_OR_RETURN(mlp.down, loader.linear(module + ".down_proj", hidden, width));
  return mlp;
}

bool routes_with_bias(RoutingMethod method) {
  return method == RoutingMethod::kSigmoidBias || method == RoutingMethod::kGroupedTop2;
}

// Routers must be 16- or 32-bit: a quantised one chooses other experts.
Status load_router(LayerLoader& loader, LayerWeights& layer) {
  const ModelConfig& config = loader.config();
  HALFBYTE_ASSIGN_OR_RETURN(const LoadedLinear router,
                            loader.raw_linear("mlp.gate", config.num_experts, config.hidden_size));
  if (router.linear_class != LinearClass::kDense) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("mlp.gate: stored as {}, a router must be 16- or 32-bit",
                              linear_class_name(router.linear_class)));
  }
  HALFBYTE_ASSIGN_OR_RETURN(layer.router,
                            loader.ops().prepare_linear(router, ActivationMode::kW4a16));
  if (routes_with_bias(config.router.method)) {
    HALFBYTE_ASSIGN_OR_RETURN(
        layer.router_bias, loader.vector("mlp.gate.e_score_correction_bias", config.num_experts));
  }
  return {};
}

Status load_feed_forward(LayerLoader& loader, bool is_moe, LayerWeights& layer) {
  const ModelConfig& config = loader.config();
  if (!is_moe) {
    HALFBYTE_ASSIGN_OR_RETURN(layer.mlp, load_mlp(loader, "mlp", config.intermediate_size));
    return {};
  }
  HALFBYTE_RETURN_IF_ERROR(load_router(loader, layer));
  if (config.num_shared_experts > 0) {
    const std::int64_t width = config.num_shared_experts * config.moe_intermediate_size;
    HALFBYTE_ASSIGN_OR_RETURN(layer.mlp, load_mlp(loader, "mlp.shared_experts", width));
  }
  return {};
}

Result<LayerWeights> load_layer_parts(LayerLoader& loader,
                                      const Architecture& architecture,
                                      bool is_moe) {
  const std::int64_t hidden = loader.config().hidden_size;
  LayerWeights layer;
  HALFBYTE_ASSIGN_OR_RETURN(layer.input_norm, loader.vector("input_layernorm.weight", hidden));
  HALFBYTE_ASSIGN_OR_RETURN(layer.post_attention_norm,
                            loader.vector("post_attention_layernorm.weight", hidden));
  HALFBYTE_ASSIGN_OR_RETURN(layer.attention, architecture.load_attention(loader));
  HALFBYTE_RETURN_IF_ERROR(load_feed_forward(loader, is_moe, layer));
  return layer;
}

Result<LayerWeights> load_layer(CheckpointWeights& weights,
                                const Architecture& architecture,
                                const ModelOptions& options,
                                const DenseOps& ops,
                                std::int64_t layer_idx) {
  LayerLoader loader(weights, ops, options, fmt::format("layers.{}.", layer_idx));
  auto layer = load_layer_parts(loader, architecture, is_moe_layer(weights.config(), layer_idx));
  if (!layer.ok()) return layer.take_status().with_context(fmt::format("layer {}", layer_idx));
  return layer;
}

template <typename T>
Status status_of(Result<T> result) {
  return result.ok() ? Status() : result.take_status();
}

// The embedding, and the head, which is the same matrix when they are tied.
Status load_vocabulary(LayerLoader& loader, SharedWeights& shared) {
  const ModelConfig& config = loader.config();
  HALFBYTE_ASSIGN_OR_RETURN(
      const LoadedLinear table,
      loader.raw_linear("embed_tokens", config.vocab_size, config.hidden_size));
  HALFBYTE_ASSIGN_OR_RETURN(shared.embedding, loader.ops().prepare_embedding(table));
  if (config.tie_word_embeddings) {
    HALFBYTE_ASSIGN_OR_RETURN(shared.head,
                              loader.ops().prepare_linear(table, ActivationMode::kW4a16));
    return {};
  }
  HALFBYTE_ASSIGN_OR_RETURN(shared.head,
                            loader.linear("lm_head", config.vocab_size, config.hidden_size));
  return {};
}

}  // namespace

Result<LoadedLinear> LayerLoader::raw_linear(std::string_view module,
                                             std::int64_t rows,
                                             std::int64_t cols) {
  return weights_.linear(prefix_ + std::string(module), rows, cols);
}

Result<std::unique_ptr<PreparedLinear>> LayerLoader::linear(std::string_view module,
                                                            std::int64_t rows,
                                                            std::int64_t cols) {
  HALFBYTE_ASSIGN_OR_RETURN(const LoadedLinear loaded, raw_linear(module, rows, cols));
  auto prepared = ops_.prepare_linear(loaded, options_.linear_activation_mode);
  if (!prepared.ok()) return prepared.take_status().with_context(prefix_ + std::string(module));
  return prepared;
}

Result<std::vector<float>> LayerLoader::vector(std::string_view name, std::int64_t count) {
  return weights_.tensor_f32(prefix_ + std::string(name), count);
}

Result<std::shared_ptr<const SharedWeights>> SharedWeights::load(CheckpointWeights& weights,
                                                                 const Architecture& architecture,
                                                                 const ModelOptions& options,
                                                                 const DenseOps& ops) {
  auto shared = std::make_shared<SharedWeights>();
  shared->config = weights.config();
  shared->architecture = &architecture;
  LayerLoader top(weights, ops, options, "");
  HALFBYTE_RETURN_IF_ERROR(load_vocabulary(top, *shared));
  HALFBYTE_ASSIGN_OR_RETURN(shared->norm, top.vector("norm.weight", shared->config.hidden_size));
  for (std::int64_t i = 0; i < shared->config.num_hidden_layers; ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(shared->layers.emplace_back(),
                              load_layer(weights, architecture, options, ops, i));
  }
  return std::shared_ptr<const SharedWeights>(std::move(shared));
}

std::vector<Status> SharedWeights::find_faults(CheckpointWeights& weights,
                                               const Architecture& architecture,
                                               const ModelOptions& options,
                                               const DenseOps& ops) {
  std::vector<Status> faults;
  const auto note = [&faults](Status status) {
    if (!status.ok()) faults.push_back(std::move(status));
  };
  LayerLoader top(weights, ops, options, "");
  SharedWeights vocabulary;
  note(load_vocabulary(top, vocabulary));
  note(status_of(top.vector("norm.weight", weights.config().hidden_size)));
  for (std::int64_t i = 0; i < weights.config().num_hidden_layers; ++i)
    note(status_of(load_layer(weights, architecture, options, ops, i)));
  return faults;
}

}  // namespace halfbyte
