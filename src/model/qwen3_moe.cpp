// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-MoE: grouped-query attention with a norm on each head of q and k before rotation
// (checkpoints.md section 12).
#include <cmath>

#include "model/architecture.h"

namespace halfbyte {
namespace {

Status check(const ModelConfig& config) {
  if (config.num_key_value_heads <= 0 ||
      config.num_attention_heads % config.num_key_value_heads != 0) {
    return Status(StatusCode::kCorruptData,
                  "num_attention_heads must be a multiple of num_key_value_heads");
  }
  return {};
}

RopeTable rope_table(const ModelConfig& config) {
  return make_rope_table(config.rope, config.head_dim, /*interleaved=*/false);
}

struct Buffers {
  Rows q, k, v, o;
};

Buffers cut(const ModelConfig& config, std::int64_t num_tokens, Scratch& scratch) {
  const std::int64_t q_width = config.num_attention_heads * config.head_dim;
  const std::int64_t kv_width = config.num_key_value_heads * config.head_dim;
  Buffers buffers;
  buffers.q = scratch.rows(num_tokens, q_width);
  buffers.k = scratch.rows(num_tokens, kv_width);
  buffers.v = scratch.rows(num_tokens, kv_width);
  buffers.o = scratch.rows(num_tokens, q_width);
  return buffers;
}

std::int64_t attention_scratch(const ModelConfig& config, std::int64_t num_tokens) {
  Scratch scratch;
  cut(config, num_tokens, scratch);
  return scratch.used_floats();
}

class GroupedQueryAttention final : public AttentionLayer {
 public:
  explicit GroupedQueryAttention(const ModelConfig& config)
      : config_(config), rope_(rope_table(config)) {}

  Status load(LayerLoader& loader) {
    const std::int64_t q_width = config_.num_attention_heads * config_.head_dim;
    const std::int64_t kv_width = config_.num_key_value_heads * config_.head_dim;
    const std::int64_t hidden = config_.hidden_size;
    HALFBYTE_ASSIGN_OR_RETURN(q_proj_, loader.linear("self_attn.q_proj", q_width, hidden));
    HALFBYTE_ASSIGN_OR_RETURN(k_proj_, loader.linear("self_attn.k_proj", kv_width, hidden));
    HALFBYTE_ASSIGN_OR_RETURN(v_proj_, loader.linear("self_attn.v_proj", kv_width, hidden));
    HALFBYTE_ASSIGN_OR_RETURN(o_proj_, loader.linear("self_attn.o_proj", hidden, q_width));
    HALFBYTE_ASSIGN_OR_RETURN(q_norm_, loader.vector("self_attn.q_norm.weight", config_.head_dim));
    HALFBYTE_ASSIGN_OR_RETURN(k_norm_, loader.vector("self_attn.k_norm.weight", config_.head_dim));
    return {};
  }

  void run(DenseOps& ops,
           const StepView& step,
           const KvLayer& cache,
           float* scratch,
           Rows h,
           Rows y) const override {
    Scratch cutter(scratch);
    const Buffers b = cut(config_, h.rows, cutter);
    ops.linear(*q_proj_, h, b.q);
    ops.linear(*k_proj_, h, b.k);
    ops.linear(*v_proj_, h, b.v);
    norm_and_rotate(ops, step, b.q, config_.num_attention_heads, q_norm_);
    norm_and_rotate(ops, step, b.k, config_.num_key_value_heads, k_norm_);
    ops.append(step, b.k, cache.keys);
    ops.append(step, b.v, cache.values);
    AttentionCall call;
    call.q = heads(b.q, config_.num_attention_heads);
    call.out = heads(b.o, config_.num_attention_heads);
    call.num_kv_heads = config_.num_key_value_heads;
    call.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
    call.cache = cache;
    ops.attention(step, call);
    ops.linear(*o_proj_, b.o, y);
  }

 private:
  Heads heads(Rows x, std::int64_t num_heads) const {
    return {x.data, x.rows, num_heads, config_.head_dim, x.row_stride, config_.head_dim};
  }

  void norm_and_rotate(DenseOps& ops,
                       const StepView& step,
                       Rows x,
                       std::int64_t num_heads,
                       std::span<const float> norm) const {
    const Rows head_rows(x.data, x.rows * num_heads, config_.head_dim);
    ops.rms_norm(head_rows, norm, static_cast<float>(config_.rms_norm_eps), head_rows);
    ops.rope(rope_, step, heads(x, num_heads));
  }

  const ModelConfig config_;
  const RopeTable rope_;
  std::unique_ptr<PreparedLinear> q_proj_, k_proj_, v_proj_, o_proj_;
  std::vector<float> q_norm_, k_norm_;  // [head_dim]
};

Result<std::unique_ptr<AttentionLayer>> load_attention(LayerLoader& loader) {
  auto attention = std::make_unique<GroupedQueryAttention>(loader.config());
  HALFBYTE_RETURN_IF_ERROR(attention->load(loader));
  return std::unique_ptr<AttentionLayer>(std::move(attention));
}

}  // namespace

const Architecture kQwen3Moe = {"Qwen3MoeForCausalLM", check, rope_table, attention_scratch,
                                load_attention};

}  // namespace halfbyte
