// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/mapped_file.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/json_text.h"
#include "checkpoint/quant_config.h"

namespace halfbyte {
namespace {

using nlohmann::json;

// Architectures whose configs must be complete; others are read as far as they go.
constexpr std::array<std::string_view, 2> kRunArchitectures = {"Qwen3MoeForCausalLM",
                                                               "DeepseekV3ForCausalLM"};

/// A file's text; {} when an optional one is not there.
Result<std::string> read_text(const std::string& directory,
                              const std::string& name,
                              bool optional) {
  std::error_code error;
  if (optional && !std::filesystem::exists(directory + "/" + name, error)) return std::string("{}");
  HALFBYTE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(directory + "/" + name));
  return std::string(as_text(file.bytes()));
}

Result<json> parse_named(std::string_view text, std::string_view name) {
  auto parsed = parse_config_json(text);
  if (!parsed.ok()) return parsed.take_status().with_context(name);
  return parsed;
}

// Whole members, as other engines replace them: half of an old rope_scaling is no new one.
Status apply_overrides(std::string_view overrides, json& config, NoticeSink& notices) {
  if (overrides.empty()) return {};
  auto parsed = parse_config_json(overrides);
  if (!parsed.ok()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--json-model-override-args: {}", parsed.status().message())};
  }
  for (const auto& [key, value] : parsed->items()) {
    const auto before = config.find(key);
    notices.notice(
        "override " + key,
        fmt::format("config.json: {} is {} instead of {} (--json-model-override-args)", key,
                    value.dump(), before == config.end() ? std::string("absent") : before->dump()));
    config[key] = value;
  }
  return {};
}

constexpr std::int64_t kMaxLayers = 65536;

std::string first_architecture(const json& object) {
  const auto it = object.find("architectures");
  if (it == object.end() || !it->is_array() || it->empty() || !it->front().is_string()) return {};
  return it->front().get<std::string>();
}

/// Wrapper models keep the text model's settings in text_config.
const json& text_settings(const json& config) {
  const auto it = config.find("text_config");
  return it != config.end() && it->is_object() ? *it : config;
}

void read_sizes(ConfigReader& reader, ModelConfig& config) {
  reader.required({"num_hidden_layers"}, config.num_hidden_layers);
  // Layers are walked; a damaged number must not become an endless walk.
  if (config.num_hidden_layers > kMaxLayers) {
    reader.fail(fmt::format("num_hidden_layers: want at most {}, got {}", kMaxLayers,
                            config.num_hidden_layers));
  }
  reader.required({"hidden_size"}, config.hidden_size);
  reader.required({"intermediate_size"}, config.intermediate_size);
  reader.required({"vocab_size"}, config.vocab_size);
  reader.required({"max_position_embeddings"}, config.max_position_embeddings);
  if (reader.strict() &&
      reader.find({"rms_norm_eps", "layer_norm_epsilon", "norm_eps"}) == nullptr) {
    reader.fail("no 'rms_norm_eps'");
  }
  reader.optional({"rms_norm_eps", "layer_norm_epsilon", "norm_eps"}, config.rms_norm_eps);
  reader.optional({"tie_word_embeddings"}, config.tie_word_embeddings);
  reader.optional({"dtype", "torch_dtype"}, config.torch_dtype);
}

void read_attention(ConfigReader& reader, ModelConfig& config) {
  reader.required({"num_attention_heads"}, config.num_attention_heads);
  config.num_key_value_heads = config.num_attention_heads;
  reader.optional({"num_key_value_heads"}, config.num_key_value_heads);
  reader.optional({"attention_bias"}, config.attention_bias);
  reader.optional({"head_dim"}, config.head_dim);
  if (config.head_dim == 0 && config.num_attention_heads > 0) {
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  bool use_sliding_window = false;
  reader.optional({"use_sliding_window"}, use_sliding_window);
  if (use_sliding_window) reader.unsupported("use_sliding_window true");
  if (reader.strict() && reader.ok() &&
      (config.num_key_value_heads < 1 ||
       config.num_attention_heads % config.num_key_value_heads != 0)) {
    reader.fail(fmt::format("num_key_value_heads {} does not divide num_attention_heads {}",
                            config.num_key_value_heads, config.num_attention_heads));
  }
}

void read_latent_attention(ConfigReader& reader, ModelConfig& config) {
  const bool is_deepseek = config.architecture == "DeepseekV3ForCausalLM";
  if (!is_deepseek && reader.find({"kv_lora_rank"}) == nullptr) return;
  reader.required({"kv_lora_rank"}, config.kv_lora_rank);
  reader.required({"qk_nope_head_dim"}, config.qk_nope_head_dim);
  reader.required({"qk_rope_head_dim"}, config.qk_rope_head_dim);
  reader.required({"v_head_dim"}, config.v_head_dim);
  reader.optional({"q_lora_rank"}, config.q_lora_rank);
  reader.optional({"rope_interleave"}, config.rope_interleave);
  // transformers 5 saves head_dim = qk_rope_head_dim here, which means nothing.
  config.head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
}

/// generation_config.json, else config.json: a number, a list or null.
Status read_end_of_text(const json& generation, const json& settings, ModelConfig& config) {
  for (const auto& [object, file] :
       {std::pair{&generation, "generation_config.json"}, std::pair{&settings, "config.json"}}) {
    const auto it = object->find("eos_token_id");
    if (it == object->end() || it->is_null()) continue;
    const json list = it->is_array() ? *it : json::array({*it});
    for (const json& id : list) {
      if (!id.is_number_integer() || id < 0 || id > 0x7FFFFFFF) {
        return Status(StatusCode::kCorruptData,
                      fmt::format("{}: eos_token_id: want token ids, got {}", file, it->dump()));
      }
      config.eos_token_ids.push_back(id.get<std::int32_t>());
    }
    return {};
  }
  return {};
}

Result<ModelConfig> read_settings(const json& json_config, NoticeSink& notices) {
  const json& settings = text_settings(json_config);
  ModelConfig config;
  config.architecture = first_architecture(json_config);
  const auto type = settings.find("model_type");
  if (type != settings.end() && type->is_string()) config.model_type = type->get<std::string>();
  const bool strict = std::find(kRunArchitectures.begin(), kRunArchitectures.end(),
                                config.architecture) != kRunArchitectures.end();
  ConfigReader reader(settings, strict);
  read_sizes(reader, config);
  read_attention(reader, config);
  read_latent_attention(reader, config);
  read_rope(reader, config, notices);
  read_moe(reader, config);
  // What cannot be understood of an architecture that is only looked at does not stop the look.
  if (!reader.ok() && strict) return reader.take_status();
  if (!reader.ok()) {
    notices.notice("config " + config.architecture,
                   fmt::format("config.json: {}", reader.take_status().message()));
  }
  return config;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view config_text,
                                       std::string_view generation_text,
                                       std::string_view hf_quant_text,
                                       NoticeSink& notices,
                                       std::string_view overrides) {
  HALFBYTE_ASSIGN_OR_RETURN(json json_config, parse_named(config_text, "config.json"));
  HALFBYTE_RETURN_IF_ERROR(apply_overrides(overrides, json_config, notices));
  HALFBYTE_ASSIGN_OR_RETURN(const json generation,
                            parse_named(generation_text, "generation_config.json"));
  HALFBYTE_ASSIGN_OR_RETURN(const json hf_quant,
                            parse_named(hf_quant_text, "hf_quant_config.json"));
  auto config = read_settings(json_config, notices);
  if (!config.ok()) return config.take_status().with_context("config.json");
  HALFBYTE_RETURN_IF_ERROR(read_end_of_text(generation, text_settings(json_config), *config));
  HALFBYTE_ASSIGN_OR_RETURN(config->quant, read_quant_plan(json_config, hf_quant, notices));
  return config;
}

Result<ModelConfig> read_model_config(const std::string& directory,
                                      NoticeSink& notices,
                                      std::string_view overrides) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::string config, read_text(directory, "config.json", false));
  HALFBYTE_ASSIGN_OR_RETURN(const std::string generation,
                            read_text(directory, "generation_config.json", true));
  HALFBYTE_ASSIGN_OR_RETURN(const std::string quant,
                            read_text(directory, "hf_quant_config.json", true));
  return parse_model_config(config, generation, quant, notices, overrides);
}

bool is_moe_layer(const ModelConfig& config, std::int64_t layer_idx) {
  if (config.num_experts == 0) return false;
  const auto& dense = config.mlp_only_layers;
  if (std::find(dense.begin(), dense.end(), layer_idx) != dense.end()) return false;
  return layer_idx >= config.first_k_dense_replace && layer_idx % config.moe_layer_freq == 0 &&
         (layer_idx + 1) % config.decoder_sparse_step == 0;
}

}  // namespace halfbyte
