// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3 and its kin: multi-head latent attention in its absorbed form (checkpoints.md 13.1,
// 13.2). The cache holds one latent row per token; queries are brought into the latent space by
// UK, results out of it by UV, so no key or value of a head is ever formed.
#include <cmath>

#include "formats/convert.h"
#include "model/architecture.h"

namespace halfbyte {
namespace {

// transformers' epsilon of the norms inside the projections, whatever rms_norm_eps says (13.1).
constexpr float kLatentNormEpsilon = 1e-6F;

Status check(const ModelConfig& config) {
  if (config.kv_lora_rank <= 0 || config.qk_nope_head_dim <= 0 || config.qk_rope_head_dim <= 0 ||
      config.v_head_dim <= 0) {
    return Status(StatusCode::kCorruptData,
                  "latent attention needs kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and "
                  "v_head_dim above 0");
  }
  return {};
}

RopeTable rope_table(const ModelConfig& config) {
  return make_rope_table(config.rope, config.qk_rope_head_dim, config.rope_interleave);
}

float softmax_scale(const ModelConfig& config) {
  const std::int64_t width = config.qk_nope_head_dim + config.qk_rope_head_dim;
  double scale = 1.0 / std::sqrt(static_cast<double>(width));
  const double mscale_all_dim = config.rope.mscale_all_dim.value_or(0.0);
  if (config.rope.type != RopeType::kDefault && mscale_all_dim != 0.0) {
    // Squared: once for the query, once for the key.
    const double mscale = yarn_mscale(config.rope.factor, mscale_all_dim);
    scale *= mscale * mscale;
  }
  return static_cast<float>(scale);
}

struct Buffers {
  Rows c_q;    // [T, q_lora_rank]
  Rows q;      // [T, heads * (nope + rope)]
  Rows kv;     // [T, kv_lora + rope]: a row of the cache
  Rows q_lat;  // [T, heads * (kv_lora + rope)]
  Rows o_lat;  // [T, heads * kv_lora]
  Rows o;      // [T, heads * v]
};

Buffers cut(const ModelConfig& config, std::int64_t num_tokens, Scratch& scratch) {
  const std::int64_t heads = config.num_attention_heads;
  const std::int64_t latent = config.kv_lora_rank + config.qk_rope_head_dim;
  Buffers b;
  b.c_q = scratch.rows(num_tokens, config.q_lora_rank);
  b.q = scratch.rows(num_tokens, heads * (config.qk_nope_head_dim + config.qk_rope_head_dim));
  b.kv = scratch.rows(num_tokens, latent);
  b.q_lat = scratch.rows(num_tokens, heads * latent);
  b.o_lat = scratch.rows(num_tokens, heads * config.kv_lora_rank);
  b.o = scratch.rows(num_tokens, heads * config.v_head_dim);
  return b;
}

std::int64_t attention_scratch(const ModelConfig& config, std::int64_t num_tokens) {
  Scratch scratch;
  cut(config, num_tokens, scratch);
  return scratch.used_floats();
}

// kv_b_proj [heads, nope + v, kv_lora] taken apart: uk [heads, kv_lora, nope] (transposed, for
// queries), uv [heads, v, kv_lora].
struct Absorbed {
  std::vector<float> uk;
  std::vector<float> uv;
};

Absorbed absorb(const ModelConfig& config, const LoadedLinear& kv_b) {
  const std::int64_t nope = config.qk_nope_head_dim;
  const std::int64_t latent = config.kv_lora_rank;
  const std::int64_t head_rows = nope + config.v_head_dim;
  Absorbed absorbed;
  absorbed.uk.resize(static_cast<std::size_t>(config.num_attention_heads * latent * nope));
  std::vector<float> row(static_cast<std::size_t>(latent));
  for (std::int64_t r = 0; r < kv_b.matrix.rows; ++r) {
    dequantize_row(kv_b.matrix, r, row.data());
    for (std::size_t i = 0; i < kv_b.pre_quant_scale.size(); ++i)
      row[i] *= kv_b.pre_quant_scale[i];
    const std::int64_t head = r / head_rows;
    const std::int64_t in_head = r % head_rows;
    if (in_head >= nope) {
      absorbed.uv.insert(absorbed.uv.end(), row.begin(), row.end());
      continue;
    }
    float* uk = absorbed.uk.data() + head * latent * nope + in_head;
    for (std::int64_t i = 0; i < latent; ++i)
      uk[i * nope] = row[static_cast<std::size_t>(i)];
  }
  return absorbed;
}

class LatentAttention final : public AttentionLayer {
 public:
  LatentAttention(const ModelConfig& config, float latent_norm_epsilon)
      : config_(config),
        rope_(rope_table(config)),
        scale_(softmax_scale(config)),
        latent_norm_epsilon_(latent_norm_epsilon) {}

  Status load(LayerLoader& loader) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t heads = config_.num_attention_heads;
    HALFBYTE_RETURN_IF_ERROR(load_queries(loader));
    HALFBYTE_ASSIGN_OR_RETURN(
        kv_a_proj_, loader.linear("self_attn.kv_a_proj_with_mqa",
                                  config_.kv_lora_rank + config_.qk_rope_head_dim, hidden));
    HALFBYTE_ASSIGN_OR_RETURN(
        kv_a_norm_, loader.vector("self_attn.kv_a_layernorm.weight", config_.kv_lora_rank));
    HALFBYTE_RETURN_IF_ERROR(load_absorbed(loader));
    HALFBYTE_ASSIGN_OR_RETURN(
        o_proj_, loader.linear("self_attn.o_proj", hidden, heads * config_.v_head_dim));
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
    project_queries(ops, h, b);
    project_latents(ops, step, h, b);
    ops.append(step, b.kv, cache.keys);
    absorb_queries(ops, step, b);
    AttentionCall call;
    call.q = heads(b.q_lat, config_.kv_lora_rank + config_.qk_rope_head_dim);
    call.out = heads(b.o_lat, config_.kv_lora_rank);
    call.scale = scale_;
    call.cache = cache;
    ops.attention(step, call);
    ops.linear_per_head(*uv_, call.out, heads(b.o, config_.v_head_dim));
    ops.linear(*o_proj_, b.o, y);
  }

 private:
  Heads heads(Rows x, std::int64_t width) const {
    return {x.data, x.rows, config_.num_attention_heads, width, x.row_stride, width};
  }

  Status load_queries(LayerLoader& loader) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t rank = config_.q_lora_rank;
    const std::int64_t width =
        config_.num_attention_heads * (config_.qk_nope_head_dim + config_.qk_rope_head_dim);
    if (rank == 0) {
      HALFBYTE_ASSIGN_OR_RETURN(q_proj_, loader.linear("self_attn.q_proj", width, hidden));
      return {};
    }
    HALFBYTE_ASSIGN_OR_RETURN(q_a_proj_, loader.linear("self_attn.q_a_proj", rank, hidden));
    HALFBYTE_ASSIGN_OR_RETURN(q_a_norm_, loader.vector("self_attn.q_a_layernorm.weight", rank));
    HALFBYTE_ASSIGN_OR_RETURN(q_proj_, loader.linear("self_attn.q_b_proj", width, rank));
    return {};
  }

  Status load_absorbed(LayerLoader& loader) {
    const std::int64_t heads = config_.num_attention_heads;
    const std::int64_t nope = config_.qk_nope_head_dim;
    const std::int64_t latent = config_.kv_lora_rank;
    HALFBYTE_ASSIGN_OR_RETURN(
        const LoadedLinear kv_b,
        loader.raw_linear("self_attn.kv_b_proj", heads * (nope + config_.v_head_dim), latent));
    const Absorbed absorbed = absorb(config_, kv_b);
    HALFBYTE_ASSIGN_OR_RETURN(uk_, loader.ops().prepare_heads(absorbed.uk, heads, latent, nope));
    HALFBYTE_ASSIGN_OR_RETURN(
        uv_, loader.ops().prepare_heads(absorbed.uv, heads, config_.v_head_dim, latent));
    return {};
  }

  void project_queries(DenseOps& ops, Rows h, const Buffers& b) const {
    if (!q_a_proj_) {
      ops.linear(*q_proj_, h, b.q);
      return;
    }
    ops.linear(*q_a_proj_, h, b.c_q);
    ops.rms_norm(b.c_q, q_a_norm_, latent_norm_epsilon_, b.c_q);
    ops.linear(*q_proj_, b.c_q, b.q);
  }

  // kv = [norm(c_kv) | rope(k_pe)], one vector for all heads.
  void project_latents(DenseOps& ops, const StepView& step, Rows h, const Buffers& b) const {
    ops.linear(*kv_a_proj_, h, b.kv);
    const Rows latents(b.kv.data, b.kv.rows, config_.kv_lora_rank, b.kv.row_stride);
    ops.rms_norm(latents, kv_a_norm_, latent_norm_epsilon_, latents);
    ops.rope(rope_, step,
             {b.kv.data + config_.kv_lora_rank, b.kv.rows, 1, config_.qk_rope_head_dim,
              b.kv.row_stride, 0});
  }

  // q_lat = [q_nope UK | rope(q_pe)] per head: the width of a cache row.
  void absorb_queries(DenseOps& ops, const StepView& step, const Buffers& b) const {
    const std::int64_t rope_width = config_.qk_rope_head_dim;
    const Heads q = heads(b.q, config_.qk_nope_head_dim + rope_width);
    const Heads q_lat = heads(b.q_lat, config_.kv_lora_rank + rope_width);
    ops.linear_per_head(*uk_, q, q_lat);
    Heads pe_from = q;
    pe_from.data += config_.qk_nope_head_dim;
    pe_from.width = rope_width;
    Heads pe_to = q_lat;
    pe_to.data += config_.kv_lora_rank;
    pe_to.width = rope_width;
    ops.copy_heads(pe_from, pe_to);
    ops.rope(rope_, step, pe_to);
  }

  const ModelConfig config_;
  const RopeTable rope_;
  const float scale_;
  const float latent_norm_epsilon_;
  std::unique_ptr<PreparedLinear> q_a_proj_;  // null when q_lora_rank is 0
  std::unique_ptr<PreparedLinear> q_proj_;    // q_b_proj, or q_proj
  std::unique_ptr<PreparedLinear> kv_a_proj_, o_proj_;
  std::unique_ptr<PreparedHeads> uk_, uv_;
  std::vector<float> q_a_norm_, kv_a_norm_;
};

Result<std::unique_ptr<AttentionLayer>> load_attention(LayerLoader& loader) {
  const ModelConfig& config = loader.config();
  const float epsilon = loader.options().latent_norm_uses_config_epsilon
                            ? static_cast<float>(config.rms_norm_eps)
                            : kLatentNormEpsilon;
  auto attention = std::make_unique<LatentAttention>(config, epsilon);
  HALFBYTE_RETURN_IF_ERROR(attention->load(loader));
  return std::unique_ptr<AttentionLayer>(std::move(attention));
}

}  // namespace

const Architecture kDeepseekV3 = {"DeepseekV3ForCausalLM", check, rope_table, attention_scratch,
                                  load_attention};

}  // namespace halfbyte
