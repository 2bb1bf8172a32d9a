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

std::string random_bytes() {
  std::mt19937 rng(1);
  std::string bytes(1 << 16, '\0');
  for (char& byte : bytes)
    byte = static_cast<char>(rng() & 0xFFU);
  return bytes;
}

const Fill kCodes = {"U8", 1, random_bytes()};
const Fill kBlockScale = {"F8_E4M3", 1, "\x38"};                      // 1.0
const Fill kScalar = {"F32", 4, std::string("\x00\x00\x80\x3c", 4)};  // 2^-6
const Fill kBf16 = {"BF16", 2, std::string("\x80\x3c\x80\xbc", 4)};   // 2^-6, -2^-6

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

void write_bytes(std::ofstream& out, const Tensor& tensor) {
  const std::string& pattern = tensor.fill->pattern;
  for (std::int64_t left = tensor.bytes(); left > 0;) {
    const std::int64_t count = std::min<std::int64_t>(left, std::ssize(pattern));
    out.write(pattern.data(), count);
    left -= count;
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
  const std::uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << header;
  for (const Tensor& tensor : tensors)
    write_bytes(out, tensor);
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

// Two heads of hidden / 2.
void add_layer(std::vector<Tensor>& tensors, std::int64_t layer, const SyntheticSizes& s) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    tensors.push_back({prefix + norm + ".weight", {s.hidden}, &kBf16});
  }
  for (const char* norm : {"q_norm", "k_norm"}) {
    tensors.push_back({prefix + "self_attn." + norm + ".weight", {s.hidden / 2}, &kBf16});
  }
  for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    tensors.push_back(
        {prefix + "self_attn." + projection + ".weight", {s.hidden, s.hidden}, &kBf16});
  }
  tensors.push_back({prefix + "mlp.gate.weight", {s.experts, s.hidden}, &kBf16});
  for (std::int64_t expert = 0; expert < s.experts; ++expert) {
    add_expert(tensors, fmt::format("{}mlp.experts.{}", prefix, expert), s);
  }
}

std::vector<Tensor> tensors_of_shard(std::int64_t shard, const SyntheticSizes& s) {
  std::vector<Tensor> tensors;
  if (shard == 0) {
    tensors.push_back({"model.embed_tokens.weight", {s.vocab, s.hidden}, &kBf16});
    tensors.push_back({"model.norm.weight", {s.hidden}, &kBf16});
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
      R"("num_experts_per_tok":8,"vocab_size":{},"max_position_embeddings":64,)"
      R"("num_attention_heads":2,"hidden_act":"silu","rms_norm_eps":1e-6,)"
      R"("quantization_config":{{"quant_method":"modelopt","quant_algo":"NVFP4",)"
      R"("ignore":["lm_head","*.self_attn*","*mlp.gate","*mlp.shared_expert.*"]}}}})",
      s.layers, s.hidden, s.intermediate, s.intermediate, s.experts, s.vocab);
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
