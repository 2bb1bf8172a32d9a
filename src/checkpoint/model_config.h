// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_MODEL_CONFIG_H_
#define HALFBYTE_CHECKPOINT_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quant_plan.h"
#include "halfbyte/moe.h"

namespace halfbyte {

enum class RopeType : std::int32_t { kDefault = 0, kLinear = 1, kYarn = 2 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double partial_rotary_factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<double> attention_factor;
  bool truncate = true;
};

/// config.json (and generation_config.json), under one spelling. Zero means "not in this family".
struct ModelConfig {
  std::string architecture;  // architectures[0]
  std::string model_type;
  std::int64_t num_hidden_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // dense layers
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::string torch_dtype;

  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  bool attention_bias = false;
  RopeConfig rope;

  // Multi-head latent attention (DeepSeek)
  std::int64_t q_lora_rank = 0;  // 0: q_proj
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  bool rope_interleave = true;

  // Mixture of experts
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t num_shared_experts = 0;
  std::int64_t first_k_dense_replace = 0;
  std::int64_t moe_layer_freq = 1;
  std::int64_t decoder_sparse_step = 1;
  std::vector<std::int64_t> mlp_only_layers;
  ActivationSpec activation;       // from hidden_act and its parameters
  bool activation_stated = false;  // false: no hidden_act, `activation` means nothing
  RouterSpec router;
  std::int64_t num_draft_layers = 0;

  std::vector<std::int32_t> eos_token_ids;
  QuantPlan quant;
};

/// Reads DIRECTORY/config.json, generation_config.json and hf_quant_config.json. The members of
/// `overrides`, a JSON object, replace those of config.json; a notice names each. Empty: none.
/// kNotFound (no config.json), kCorruptData (not JSON, a size missing: names the key), kUnsupported
/// (names the feature), kInvalidArgument (`overrides` is no object).
Result<ModelConfig> read_model_config(const std::string& directory,
                                      NoticeSink& notices,
                                      std::string_view overrides = {});

/// The same from the files' texts; "{}" stands for a file that is not there.
Result<ModelConfig> parse_model_config(std::string_view config_text,
                                       std::string_view generation_text,
                                       std::string_view hf_quant_text,
                                       NoticeSink& notices,
                                       std::string_view overrides = {});

/// True when layer `layer_idx` has routed experts.
bool is_moe_layer(const ModelConfig& config, std::int64_t layer_idx);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_MODEL_CONFIG_H_
