// SPDX-License-Identifier: Apache-2.0
//
// Opens a checkpoint with as many tensors as the largest NVFP4 ones (124,000, four shards, an
// index) and prints the CPU seconds; exits 1 above the budget of 1 s on one core. `load_bench
// [RUNS]`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <vector>

#include "weights/checkpoint_weights.h"

namespace {

constexpr int kLayers = 40, kExperts = 256, kShards = 4;
constexpr int kHidden = 16, kIntermediate = 16;
constexpr double kBudgetSeconds = 1.0;

struct Shard {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  std::vector<std::string> names;

  void add(const std::string& name,
           std::string_view dtype,
           const std::string& shape,
           std::string_view bytes) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          dtype, shape, data.size(), data.size() + bytes.size());
    data += bytes;
    names.push_back(name);
  }
  void write(const std::filesystem::path& path) const {
    std::ofstream out(path, std::ios::binary);
    const std::string text = header + "}";
    std::uint64_t size = text.size();
    out.write(reinterpret_cast<const char*>(&size), sizeof(size));
    out << text << data;
  }
};

void add_expert(Shard& shard, const std::string& module) {
  const std::string_view one("\0\0\x80\x3f", 4);  // 1.0F
  shard.add(module + ".input_scale", "F32", "", one);
  shard.add(module + ".weight_scale_2", "F32", "", one);
  shard.add(module + ".weight_scale", "F8_E4M3", fmt::format("{},1", kHidden),
            std::string(kHidden, '8'));
  shard.add(module + ".weight", "U8", fmt::format("{},8", kHidden), std::string(kHidden * 8, '!'));
}

std::size_t write_checkpoint(const std::filesystem::path& directory) {
  std::size_t num_tensors = 0;
  std::string index;
  for (int s = 0; s < kShards; ++s) {
    Shard shard;
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, kShards);
    for (int layer = s; layer < kLayers; layer += kShards) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      const std::string row(kHidden * 2, '\0');
      shard.add(prefix + "input_layernorm.weight", "BF16", fmt::format("{}", kHidden), row);
      std::string router;
      for (int e = 0; e < kExperts; ++e)
        router += row;
      shard.add(prefix + "mlp.gate.weight", "BF16", fmt::format("{},{}", kExperts, kHidden),
                router);
      for (int expert = 0; expert < kExperts; ++expert) {
        for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
          add_expert(shard, fmt::format("{}mlp.experts.{}.{}", prefix, expert, projection));
        }
      }
    }
    shard.write(directory / file);
    num_tensors += shard.names.size();
    for (const std::string& name : shard.names) {
      index += fmt::format("{}\"{}\":\"{}\"", index.empty() ? "" : ",", name, file);
    }
  }
  std::ofstream(directory / "model.safetensors.index.json") << "{\"weight_map\":{" << index << "}}";
  std::ofstream(directory / "config.json") << fmt::format(
      R"({{"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","num_hidden_layers":{},)"
      R"("hidden_size":{},"intermediate_size":32,"moe_intermediate_size":{},"num_experts":{},)"
      R"("num_experts_per_tok":8,"vocab_size":8,"max_position_embeddings":64,)"
      R"("num_attention_heads":2,"hidden_act":"silu","rms_norm_eps":1e-6,)"
      R"("quantization_config":{{"quant_method":"modelopt","quant_algo":"NVFP4",)"
      R"("ignore":["lm_head","*.self_attn*","re:x","*mlp.gate","*mlp.shared_expert.*"]}}}})",
      kLayers, kHidden, kIntermediate, kExperts);
  return num_tensors;
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  const auto directory =
      std::filesystem::temp_directory_path() / fmt::format("halfbyte-load-bench-{}", getpid());
  std::filesystem::create_directories(directory);
  const std::size_t num_tensors = write_checkpoint(directory);
  double best = 1e9;
  halfbyte::Status status;
  for (int run = 0; run < runs && status.ok(); ++run) {
    const std::clock_t begin = std::clock();
    const auto weights = halfbyte::CheckpointWeights::open(directory.string(), false, nullptr);
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    if (!weights.ok()) status = weights.status().clone();
  }
  std::filesystem::remove_all(directory);
  if (!status.ok()) {
    fmt::print(stderr, "error: {}\n", status.to_string());
    return 1;
  }
  fmt::print("open {} tensors: {:.3f} CPU seconds (best of {}), budget {:.1f}\n", num_tensors, best,
             runs, kBudgetSeconds);
  return best <= kBudgetSeconds ? 0 : 1;
}
