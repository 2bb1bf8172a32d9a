// SPDX-License-Identifier: Apache-2.0
//
// A Qwen3-MoE checkpoint of a few kilobytes with seeded random bytes, in any dialect, for tests of
// loading. Change `tensors` and `config` before write().
#ifndef HALFBYTE_TESTS_SUPPORT_TINY_CHECKPOINT_H_
#define HALFBYTE_TESTS_SUPPORT_TINY_CHECKPOINT_H_

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/safetensors_writer.h"

namespace halfbyte::test {

enum class TinyDialect { kModelOpt, kCompressedTensors };

struct TinySizes {
  std::int64_t layers = 2;
  std::int64_t hidden = 32;
  std::int64_t intermediate = 16;
  std::int64_t experts = 4;
  std::int64_t vocab = 8;
  std::int64_t heads = 2;
  std::int64_t head_dim = 16;
};

/// Codes and block scales of one NVFP4 matrix with scalars that are powers of two, so that their
/// reciprocals are exact.
struct TinyNvfp4 {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> block_scale;
  float global_scale = 1.0F;
  float input_scale = 1.0F;
};

inline TinyNvfp4 random_nvfp4(std::mt19937& rng, std::int64_t rows, std::int64_t cols) {
  TinyNvfp4 matrix{rows, cols, {}, {}, 1.0F, 1.0F};
  for (std::int64_t i = 0; i < rows * cols / 2; ++i) {
    matrix.codes.push_back(static_cast<std::uint8_t>(rng() & 0xFFU));
  }
  for (std::int64_t i = 0; i < rows * cols / 16; ++i) {
    matrix.block_scale.push_back(static_cast<std::uint8_t>(0x20 + rng() % 0x40));
  }
  matrix.global_scale = std::ldexp(1.0F, -static_cast<int>(rng() % 12));
  matrix.input_scale = std::ldexp(1.0F, -static_cast<int>(rng() % 12));
  return matrix;
}

/// Writes the four tensors of `matrix` in the dialect's spelling.
inline void put_nvfp4(TensorSet& tensors,
                      const std::string& module,
                      const TinyNvfp4& m,
                      TinyDialect dialect) {
  const bool modelopt = dialect == TinyDialect::kModelOpt;
  const float global = modelopt ? m.global_scale : 1.0F / m.global_scale;
  const float input = modelopt ? m.input_scale : 1.0F / m.input_scale;
  const std::vector<std::int64_t> scalar =
      modelopt ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1};
  put(tensors, byte_tensor(module + (modelopt ? ".weight" : ".weight_packed"), DType::kU8,
                           {m.rows, m.cols / 2}, m.codes));
  put(tensors,
      byte_tensor(module + ".weight_scale", DType::kF8E4m3, {m.rows, m.cols / 16}, m.block_scale));
  put(tensors, f32_tensor(module + (modelopt ? ".weight_scale_2" : ".weight_global_scale"), scalar,
                          {global}));
  put(tensors,
      f32_tensor(module + (modelopt ? ".input_scale" : ".input_global_scale"), scalar, {input}));
}

inline std::vector<float> random_floats(std::mt19937& rng, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(static_cast<int>(rng() % 64) - 32) / 64.0F);
  }
  return values;
}

struct TinyCheckpoint {
  TinySizes sizes;
  TensorSet tensors;
  nlohmann::ordered_json config;

  void write(const TempDirectory& directory) const {
    write_safetensors(directory / "model.safetensors", tensors);
    write_text(directory / "config.json", config.dump());
  }
};

inline nlohmann::ordered_json tiny_config(const TinySizes& s, TinyDialect dialect) {
  nlohmann::ordered_json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                   {"model_type", "qwen3_moe"},
                                   {"num_hidden_layers", s.layers},
                                   {"hidden_size", s.hidden},
                                   {"intermediate_size", 2 * s.intermediate},
                                   {"moe_intermediate_size", s.intermediate},
                                   {"num_experts", s.experts},
                                   {"num_experts_per_tok", 2},
                                   {"norm_topk_prob", true},
                                   {"vocab_size", s.vocab},
                                   {"max_position_embeddings", 64},
                                   {"num_attention_heads", s.heads},
                                   {"num_key_value_heads", s.heads},
                                   {"head_dim", s.head_dim},
                                   {"hidden_act", "silu"},
                                   {"rms_norm_eps", 1e-6},
                                   {"rope_theta", 10000.0},
                                   {"eos_token_id", 2}};
  const nlohmann::ordered_json weights = {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  nlohmann::ordered_json quant = {
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", weights}}}}},
      {"ignore", {"lm_head"}}};
  if (dialect == TinyDialect::kModelOpt) {
    quant["quant_method"] = "modelopt";
    quant["quant_algo"] = "NVFP4";
  } else {
    quant["quant_method"] = "compressed-tensors";
    quant["format"] = "nvfp4-pack-quantized";
  }
  config["quantization_config"] = quant;
  return config;
}

inline TinyCheckpoint tiny_checkpoint(TinyDialect dialect = TinyDialect::kModelOpt,
                                      TinySizes s = {},
                                      std::uint32_t seed = 7) {
  TinyCheckpoint out{s, {}, tiny_config(s, dialect)};
  std::mt19937 rng(seed);
  const auto dense = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape)
      count *= dim;
    put(out.tensors, bf16_tensor(name, std::move(shape), random_floats(rng, count)));
  };
  dense("model.embed_tokens.weight", {s.vocab, s.hidden});
  dense("model.norm.weight", {s.hidden});
  dense("lm_head.weight", {s.vocab, s.hidden});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      dense(prefix + norm + ".weight", {s.hidden});
    }
    for (const char* norm : {"q_norm", "k_norm"}) {
      dense(prefix + "self_attn." + norm + ".weight", {s.head_dim});
    }
    for (const char* proj : {"q_proj", "k_proj", "v_proj"}) {
      dense(prefix + "self_attn." + proj + ".weight", {s.heads * s.head_dim, s.hidden});
    }
    dense(prefix + "self_attn.o_proj.weight", {s.hidden, s.heads * s.head_dim});
    dense(prefix + "mlp.gate.weight", {s.experts, s.hidden});
    for (std::int64_t expert = 0; expert < s.experts; ++expert) {
      const std::string path = fmt::format("{}mlp.experts.{}.", prefix, expert);
      put_nvfp4(out.tensors, path + "gate_proj", random_nvfp4(rng, s.intermediate, s.hidden),
                dialect);
      put_nvfp4(out.tensors, path + "up_proj", random_nvfp4(rng, s.intermediate, s.hidden),
                dialect);
      put_nvfp4(out.tensors, path + "down_proj", random_nvfp4(rng, s.hidden, s.intermediate),
                dialect);
    }
  }
  return out;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_TINY_CHECKPOINT_H_
