// SPDX-License-Identifier: Apache-2.0
#include "synthetic_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::benchmarks {
namespace {

struct Fill {
  std::string_view dtype;
  std::int64_t element_bytes;
  std::string pattern;  // repeated over the tensor
};

// A prime: no two rows of a matrix hold the same part of a pattern.
constexpr std::size_t kPatternElements = 32749;

std::string random_bytes(std::uint32_t first, std::uint32_t count) {
  std::mt19937 rng(1);
  std::string bytes(kPatternElements, '\0');
  for (char& byte : bytes)
    byte = static_cast<char>(first + rng() % count);
  return bytes;
}

// +-2^-7 to 2^-4, little-endian.
std::string random_bf16() {
  constexpr std::uint32_t kSmallest = 120U << 7;  // exponents 120 to 122
  constexpr std::uint32_t kCount = 3U << 7;
  std::mt19937 rng(2);
  std::string bytes;
  for (std::size_t i = 0; i < kPatternElements; ++i) {
    const auto bits = static_cast<std::uint32_t>(kSmallest + rng() % kCount + ((rng() & 1U) << 15));
    bytes += {static_cast<char>(bits & 0xFFU), static_cast<char>(bits >> 8)};
  }
  return bytes;
}

const Fill kCodes = {"U8", 1, random_bytes(0, 0x100)};
const Fill kBlockScale = {"F8_E4M3", 1, random_bytes(0x28, 0x21)};    // 2^-2 to 4
const Fill kScalar = {"F32", 4, std::string("\x00\x00\x80\x3b", 4)};  // 2^-8
const Fill kBf16 = {"BF16", 2, random_bf16()};
const Fill kNorm = {"BF16", 2, "\x80\x3f"};  // 1.0

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  const Fill* fill;

  std::int64_t bytes() const {
    std::int64_t count = fill->element_bytes;
    for (const std::int64_t dim : shape)
      count *= dim;
    return count;
  }
};

// Where in its pattern a tensor begins: tensors of other names hold other numbers.
std::int64_t first_byte(const Tensor& tensor) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : tensor.name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  const std::int64_t element_bytes = tensor.fill->element_bytes;
  return hash % (std::ssize(tensor.fill->pattern) / element_bytes) * element_bytes;
}

void write_bytes(std::ofstream& out, const Tensor& tensor) {
  const std::string& pattern = tensor.fill->pattern;
  std::int64_t begin = first_byte(tensor);
  for (std::int64_t left = tensor.bytes(); left > 0;) {
    const std::int64_t count = std::min<std::int64_t>(left, std::ssize(pattern) - begin);
    out.write(pattern.data() + begin, count);
    left -= count;
    begin = 0;
  }
}

void write_shard(const std::filesystem::path& path, const std::vector<Tensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          tensor.name, tensor.fill->dtype, fmt::join(tensor.shape, ","), offset,
                          offset + tensor.bytes());
    offset += tensor.bytes();
  }
  header += "}";
  std::ofstream out(path, std::ios::binary);
  out.exceptions(std::ios::failbit | std::ios::badbit);  // a full disk
  const std::uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << header;
  for (const Tensor& tensor : tensors)
    write_bytes(out, tensor);
  out.close();
}

void add_nvfp4(std::vector<Tensor>& tensors,
               const std::string& module,
               std::int64_t rows,
               std::int64_t cols) {
  tensors.push_back({module + ".input_scale", {}, &kScalar});
  tensors.push_back({module + ".weight_scale_2", {}, &kScalar});
  tensors.push_back({module + ".weight_scale", {rows, cols / 16}, &kBlockScale});
  tensors.push_back({module + ".weight", {rows, cols / 2}, &kCodes});
}

void add_expert(std::vector<Tensor>& tensors, const std::string& module, const SyntheticSizes& s) {
  add_nvfp4(tensors, module + ".gate_proj", s.intermediate, s.hidden);
  add_nvfp4(tensors, module + ".up_proj", s.intermediate, s.hidden);
  add_nvfp4(tensors, module + ".down_proj", s.hidden, s.intermediate);
}

void add_attention(std::vector<Tensor>& tensors,
                   const std::string& module,
                   const SyntheticSizes& s) {
  const std::int64_t q_size = s.heads * s.head_dim;
  const std::int64_t kv_size = s.kv_heads * s.head_dim;
  tensors.push_back({module + ".q_norm.weight", {s.head_dim}, &kNorm});
  tensors.push_back({module + ".k_norm.weight", {s.head_dim}, &kNorm});
  tensors.push_back({module + ".q_proj.weight", {q_size, s.hidden}, &kBf16});
  tensors.push_back({module + ".k_proj.weight", {kv_size, s.hidden}, &kBf16});
  tensors.push_back({module + ".v_proj.weight", {kv_size, s.hidden}, &kBf16});
  tensors.push_back({module + ".o_proj.weight", {s.hidden, q_size}, &kBf16});
}

void add_layer(std::vector<Tensor>& tensors, std::int64_t layer, const SyntheticSizes& s) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    tensors.push_back({prefix + norm + ".weight", {s.hidden}, &kNorm});
  }
  add_attention(tensors, prefix + "self_attn", s);
  tensors.push_back({prefix + "mlp.gate.weight", {s.experts, s.hidden}, &kBf16});
  for (std::int64_t expert = 0; expert < s.experts; ++expert) {
    add_expert(tensors, fmt::format("{}mlp.experts.{}", prefix, expert), s);
  }
}

std::vector<Tensor> tensors_of_shard(std::int64_t shard, const SyntheticSizes& s) {
  std::vector<Tensor> tensors;
  if (shard == 0) {
    tensors.push_back({"model.embed_tokens.weight", {s.vocab, s.hidden}, &kBf16});
    tensors.push_back({"model.norm.weight", {s.hidden}, &kNorm});
    tensors.push_back({"lm_head.weight", {s.vocab, s.hidden}, &kBf16});
  }
  for (std::int64_t layer = shard; layer < s.layers; layer += s.shards)
    add_layer(tensors, layer, s);
  return tensors;
}

void write_config(const std::filesystem::path& directory, const SyntheticSizes& s) {
  std::ofstream(directory / "config.json") << fmt::format(
      R"({{"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","num_hidden_layers":{},)"
      R"("hidden_size":{},"intermediate_size":{},"moe_intermediate_size":{},"num_experts":{},)"
      R"("num_experts_per_tok":{},"norm_topk_prob":true,"vocab_size":{},)"
      R"("max_position_embeddings":{},"num_attention_heads":{},"num_key_value_heads":{},)"
      R"("head_dim":{},"rope_theta":1000000.0,"hidden_act":"silu","rms_norm_eps":1e-6,)"
      R"("quantization_config":{{"quant_method":"modelopt","quant_algo":"NVFP4",)"
      R"("ignore":["lm_head","*.self_attn*","*mlp.gate","*mlp.shared_expert.*"]}}}})",
      s.layers, s.hidden, s.intermediate, s.intermediate, s.experts, s.top_k, s.vocab, s.context,
      s.heads, s.kv_heads, s.head_dim);
}

}  // namespace

SyntheticCheckpoint write_synthetic_checkpoint(const std::filesystem::path& directory,
                                               const SyntheticSizes& sizes) {
  SyntheticCheckpoint written;
  std::ofstream index(directory / "model.safetensors.index.json");
  index << "{\"weight_map\":{";
  for (std::int64_t shard = 0; shard < sizes.shards; ++shard) {
    const std::string file =
        fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, sizes.shards);
    const std::vector<Tensor> tensors = tensors_of_shard(shard, sizes);
    write_shard(directory / file, tensors);
    for (const Tensor& tensor : tensors) {
      index << fmt::format("{}\"{}\":\"{}\"", written.num_tensors == 0 ? "" : ",", tensor.name,
                           file);
      ++written.num_tensors;
      written.tensor_bytes += tensor.bytes();
    }
  }
  index << "}}";
  write_config(directory, sizes);
  std::vector<Tensor> expert;
  add_expert(expert, "", sizes);
  for (const Tensor& tensor : expert)
    written.expert_bytes += tensor.bytes();
  return written;
}

}  // namespace halfbyte::benchmarks
