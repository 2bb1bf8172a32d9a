// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <fmt/format.h>
#include <algorithm>

#include "formats/convert.h"
#include "model/step.h"

namespace halfbyte {
namespace {

// Everything a step writes, cut for `num_tokens` tokens.
struct Activations {
  Rows x;                            // residual stream [T, H]
  Rows h;                            // normed input of a block
  Rows y;                            // output of a block
  Rows shared;                       // output of the shared experts
  Rows gate, up;                     // [T, widest dense block]
  Rows router;                       // [T, E]
  Rows x16, y16;                     // bf16 copies that the experts exchange; [T, H / 2] floats
  float* attention = nullptr;        // scratch of the architecture
  std::int32_t* topk_idx = nullptr;  // [T, k]
  float* topk_weights = nullptr;     // [T, k]
};

std::int64_t mlp_width(const ModelConfig& config) {
  return std::max(config.intermediate_size,
                  config.num_shared_experts * config.moe_intermediate_size);
}

Activations cut(const ModelConfig& config,
                const Architecture& architecture,
                std::int64_t num_tokens,
                Scratch& scratch) {
  const std::int64_t hidden = config.hidden_size;
  Activations a;
  a.x = scratch.rows(num_tokens, hidden);
  a.h = scratch.rows(num_tokens, hidden);
  a.y = scratch.rows(num_tokens, hidden);
  a.shared = scratch.rows(num_tokens, hidden);
  a.gate = scratch.rows(num_tokens, mlp_width(config));
  a.up = scratch.rows(num_tokens, mlp_width(config));
  a.router = scratch.rows(num_tokens, config.num_experts);
  a.x16 = scratch.rows(num_tokens, ceil_div(hidden, 2));
  a.y16 = scratch.rows(num_tokens, ceil_div(hidden, 2));
  a.attention = scratch.take(architecture.attention_scratch(config, num_tokens));
  a.topk_idx =
      reinterpret_cast<std::int32_t*>(scratch.take(num_tokens * config.num_experts_per_tok));
  a.topk_weights = scratch.take(num_tokens * config.num_experts_per_tok);
  return a;
}

class Decoder final : public Model {
 public:
  Decoder(DecoderParts parts, KvCache cache, HostBuffer activations)
      : parts_(std::move(parts)),
        cache_(std::move(cache)),
        activations_(std::move(activations)),
        rope_(parts_.weights->architecture->rope_table(config())),
        step_buffers_(parts_.options.moe.capacity_tokens, rope_) {}

  const ModelConfig& config() const override { return parts_.weights->config; }

  Status forward(const Batch& batch, std::span<float> logits) override {
    HALFBYTE_RETURN_IF_ERROR(check(batch, logits));
    const StepView step = step_buffers_.fill(batch, rope_);
    const auto num_tokens = static_cast<std::int64_t>(batch.token_ids.size());
    Scratch scratch(activations_.as<float>());
    const Activations a = cut(config(), *parts_.weights->architecture, num_tokens, scratch);
    parts_.ops->embed(*parts_.weights->embedding, batch.token_ids, a.x);
    for (std::int64_t i = 0; i < config().num_hidden_layers; ++i) {
      run_attention(i, step, a);
      Status status = run_feed_forward(i, batch, a);
      if (!status.ok()) return std::move(status).with_context(fmt::format("layer {}", i));
    }
    compute_logits(batch, a, logits);
    return {};
  }

  std::string describe_plan() const override;
  std::string_view backend_name() const override {
    return any_experts() == nullptr ? parts_.ops->name() : any_experts()->backend_name();
  }
  std::string_view transport_name() const override {
    return any_experts() == nullptr ? "local" : any_experts()->transport_name();
  }
  ActivationMode activation_mode() const override {
    return any_experts() == nullptr ? ActivationMode::kW4a16 : any_experts()->activation_mode();
  }

  std::vector<ExpertLoad> expert_load() const override {
    std::vector<ExpertLoad> result;
    for (std::size_t i = 0; i < parts_.experts.size(); ++i) {
      if (!parts_.experts[i]) continue;
      result.push_back({static_cast<std::int64_t>(i), parts_.experts[i]->counters()});
    }
    return result;
  }

 private:
  Status check(const Batch& batch, std::span<float> logits) const {
    StepLimits limits;
    limits.capacity_tokens = parts_.options.moe.capacity_tokens;
    limits.max_context_tokens = parts_.options.max_context_tokens;
    limits.num_blocks = cache_.num_blocks();
    limits.vocab_size = config().vocab_size;
    HALFBYTE_RETURN_IF_ERROR(check_batch(batch, limits));
    const auto wanted = batch.logit_rows.size() * static_cast<std::size_t>(config().vocab_size);
    if (logits.size() == wanted) return {};
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("logits: room for {} values, want {} rows of {}", logits.size(),
                              batch.logit_rows.size(), config().vocab_size));
  }

  const LayerWeights& layer(std::int64_t idx) const {
    return parts_.weights->layers[static_cast<std::size_t>(idx)];
  }

  float epsilon() const { return static_cast<float>(config().rms_norm_eps); }

  void run_attention(std::int64_t layer_idx, const StepView& step, const Activations& a) {
    const LayerWeights& weights = layer(layer_idx);
    parts_.ops->rms_norm(a.x, weights.input_norm, epsilon(), a.h);
    weights.attention->run(*parts_.ops, step, cache_.layer(layer_idx), a.attention, a.h, a.y);
    parts_.ops->add(a.x, a.y);
  }

  Status run_feed_forward(std::int64_t layer_idx, const Batch& batch, const Activations& a) {
    const LayerWeights& weights = layer(layer_idx);
    parts_.ops->rms_norm(a.x, weights.post_attention_norm, epsilon(), a.h);
    MoeLayer* experts = parts_.experts[static_cast<std::size_t>(layer_idx)].get();
    if (experts == nullptr) {
      run_mlp(weights.mlp, a, a.y);
    } else {
      HALFBYTE_RETURN_IF_ERROR(run_experts(weights, *experts, batch, a));
    }
    parts_.ops->add(a.x, a.y);
    return {};
  }

  // y = mlp(a.h)
  void run_mlp(const DenseMlp& mlp, const Activations& a, Rows y) {
    const Rows gate(a.gate.data, a.gate.rows, mlp.gate->rows);
    const Rows up(a.up.data, a.up.rows, mlp.up->rows);
    parts_.ops->linear(*mlp.gate, a.h, gate);
    parts_.ops->linear(*mlp.up, a.h, up);
    parts_.ops->activate(config().activation, gate, up, gate);
    parts_.ops->linear(*mlp.down, gate, y);
  }

  // a.y = routed experts + shared experts of a.h. The shared experts run while tokens travel.
  Status run_experts(const LayerWeights& weights,
                     MoeLayer& experts,
                     const Batch& batch,
                     const Activations& a) {
    HALFBYTE_ASSIGN_OR_RETURN(const Routing routing, route(weights, experts, a));
    HALFBYTE_RETURN_IF_ERROR(experts.start(expert_input(a), routing, batch.tokens_per_rank));
    SharedExpert shared;
    if (weights.mlp.gate) {
      run_mlp(weights.mlp, a, a.shared);
      // Every rank has all of it: added once, after the reduction, to the rank's own tokens.
      shared.kind = SharedExpert::Kind::kReplicated;
      shared.rows = ConstMatrixView(a.shared.data, DType::kF32, a.shared.rows, a.shared.cols);
    }
    if (!exchanges_bf16())
      return experts.finish(shared, MatrixView(a.y.data, DType::kF32, a.y.rows, a.y.cols));
    const MatrixView y16(a.y16.data, DType::kBf16, a.y.rows, a.y.cols);
    HALFBYTE_RETURN_IF_ERROR(experts.finish(shared, y16));
    widen_to_f32(DType::kBf16, y16.data, a.y.rows * a.y.cols, a.y.data);
    return {};
  }

  Result<Routing> route(const LayerWeights& weights, MoeLayer& experts, const Activations& a) {
    parts_.ops->linear_f32(*weights.router, a.h, a.router);
    const auto routes = static_cast<std::size_t>(a.h.rows * config().num_experts_per_tok);
    const std::span<std::int32_t> topk_idx(a.topk_idx, routes);
    const std::span<float> topk_weights(a.topk_weights, routes);
    HALFBYTE_RETURN_IF_ERROR(
        experts.route(ConstMatrixView(a.router.data, DType::kF32, a.router.rows, a.router.cols),
                      weights.router_bias, topk_idx, topk_weights));
    return Routing{topk_idx, topk_weights};
  }

  bool exchanges_bf16() const { return parts_.options.dtype == ComputeDtype::kBfloat16; }

  ConstMatrixView expert_input(const Activations& a) const {
    if (!exchanges_bf16()) return {a.h.data, DType::kF32, a.h.rows, a.h.cols};
    narrow_from_f32(DType::kBf16, a.h.data, a.h.rows * a.h.cols, a.x16.data);
    return {a.x16.data, DType::kBf16, a.h.rows, a.h.cols};
  }

  void compute_logits(const Batch& batch, const Activations& a, std::span<float> logits) {
    const auto num_rows = static_cast<std::int64_t>(batch.logit_rows.size());
    const Rows rows(a.h.data, num_rows, a.h.cols);
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const float* src = a.x.data + batch.logit_rows[static_cast<std::size_t>(i)] * a.x.row_stride;
      std::copy_n(src, a.x.cols, rows.data + i * rows.row_stride);
    }
    parts_.ops->rms_norm(rows, parts_.weights->norm, epsilon(), rows);
    parts_.ops->linear_f32(*parts_.weights->head, rows,
                           Rows(logits.data(), num_rows, config().vocab_size));
  }

  const MoeLayer* any_experts() const {
    for (const auto& experts : parts_.experts) {
      if (experts) return experts.get();
    }
    return nullptr;
  }

  DecoderParts parts_;
  KvCache cache_;
  HostBuffer activations_;
  RopeTable rope_;
  StepBuffers step_buffers_;
};

std::string Decoder::describe_plan() const {
  const ModelConfig& c = config();
  const std::int64_t block_bytes = kv_bytes_per_block(c, parts_.options.kv_cache_dtype);
  std::string text = fmt::format(
      "{}: {} layers, hidden {}, dense ops {}, compute dtype {}\n"
      "KV cache: {} blocks of {} tokens, {}, {} bytes a token\n"
      "activations: {} bytes for {} tokens\n",
      parts_.weights->architecture->name, c.num_hidden_layers, c.hidden_size, parts_.ops->name(),
      exchanges_bf16() ? "bfloat16" : "float32", cache_.num_blocks(), kKvBlockTokens,
      dtype_name(kv_cache_element(parts_.options.kv_cache_dtype)), block_bytes / kKvBlockTokens,
      activations_.size(), parts_.options.moe.capacity_tokens);
  if (any_experts() != nullptr) text += any_experts()->describe_plan();
  return text;
}

}  // namespace

Result<std::unique_ptr<Model>> make_decoder(DecoderParts parts) {
  const ModelConfig& config = parts.weights->config;
  HALFBYTE_ASSIGN_OR_RETURN(KvCache cache,
                            KvCache::allocate(config, parts.options.kv_cache_dtype,
                                              parts.options.kv_cache_blocks, parts.kv_scales));
  Scratch sizes;
  cut(config, *parts.weights->architecture, parts.options.moe.capacity_tokens, sizes);
  HALFBYTE_ASSIGN_OR_RETURN(
      HostBuffer activations,
      HostBuffer::allocate(static_cast<std::size_t>(sizes.used_floats()) * sizeof(float)));
  return std::unique_ptr<Model>(
      std::make_unique<Decoder>(std::move(parts), std::move(cache), std::move(activations)));
}

}  // namespace halfbyte
