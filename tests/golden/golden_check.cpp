// SPDX-License-Identifier: Apache-2.0
//
// golden_check MODEL_DIR GOLDEN_DIR [BACKEND]: prints how far a model is from a whole set of
// recordings (golden_logits, golden_layers, golden.json). For developers; the tests hold a thinned
// set of one model to the same bounds.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/layer_support.h"

namespace halfbyte {
namespace {

struct Paths {
  std::string model;
  std::string golden;
  std::string backend;
};

ModelOptions mode_options(const Paths& paths, ActivationMode mode) {
  ModelOptions options = float32_options(paths.backend);
  options.moe.activation_mode = mode;
  return options;
}

void check_logits(Model& model,
                  const std::string& mode,
                  const std::map<std::string, GoldenTensor>& golden,
                  const std::string& label) {
  const std::vector<float>& want = golden.at("logits." + mode).f32;
  const std::vector<std::int32_t>& tokens = golden.at("tokens").i32;
  const std::vector<std::int32_t>& offsets = golden.at("offsets").i32;
  const std::int64_t vocab = model.config().vocab_size;
  std::vector<float> got_all, got_kl, want_kl;
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    if (static_cast<std::int64_t>(want.size()) < offsets[s + 1] * vocab) break;
    const std::vector<std::int32_t> ids(tokens.begin() + offsets[s],
                                        tokens.begin() + offsets[s + 1]);
    const std::vector<float> logits = score(model, ids);
    got_all.insert(got_all.end(), logits.begin(), logits.end());
    // All positions but the last: what follows the end of the answer was never trained.
    got_kl.insert(got_kl.end(), logits.begin(), logits.end() - vocab);
    want_kl.insert(want_kl.end(), want.begin() + offsets[s] * vocab,
                   want.begin() + (offsets[s + 1] - 1) * vocab);
  }
  fmt::print("logits {:13} {:22} rel_max {:.2e}  kl_mean {:.2e}\n", mode, label,
             relative_max(got_all, want), mean_kl(got_kl, want_kl, vocab));
}

void check_greedy(Model& model, const std::string& mode, const std::string& golden_dir) {
  std::ifstream file(golden_dir + "/golden.json");
  const auto golden = nlohmann::json::parse(file);
  std::int64_t equal = 0;
  for (const auto& problem : golden.at("greedy")) {
    const auto want = problem.at(mode).get<std::vector<std::int32_t>>();
    const auto prompt = problem.at("prompt_ids").get<std::vector<std::int32_t>>();
    if (generate(model, prompt, {2}, 128) == want) ++equal;
  }
  fmt::print("greedy {:13} {} of {} streams equal\n", mode, equal, golden.at("greedy").size());
}

void check_layers(const Paths& paths,
                  ActivationMode mode,
                  const std::map<std::string, GoldenTensor>& golden) {
  auto weights = CheckpointWeights::open(paths.model, false, std::make_shared<NoticeSink>());
  const std::string name(activation_mode_name(mode));
  LayerErrors worst;
  for (std::int64_t i = 0; i < (*weights)->config().num_hidden_layers; ++i) {
    const std::string prefix = fmt::format("{}.layer{}.", name, i);
    if (!golden.contains(prefix + "x")) continue;
    const LayerErrors errors =
        compare_layer(**weights, i, mode_options(paths, mode), golden, prefix);
    worst.rows_with_other_experts += errors.rows_with_other_experts;
    worst.topk_weights = std::max(worst.topk_weights, errors.topk_weights);
    worst.y = std::max(worst.y, errors.y);
  }
  fmt::print("layers {:13} other experts {}  topk_weights {:.2e}  y {:.2e}\n", name,
             worst.rows_with_other_experts, worst.topk_weights, worst.y);
}

void check_mode(const Paths& paths,
                ActivationMode mode,
                const std::map<std::string, GoldenTensor>& golden) {
  const std::string name(activation_mode_name(mode));
  ModelOptions options = mode_options(paths, mode);
  if (const auto model = load_one_rank(paths.model, options)) {
    check_logits(*model, name, golden, "float32");
    check_greedy(*model, name, paths.golden);
  }
  options.dtype = ComputeDtype::kAuto;
  options.kv_cache_dtype = KvCacheDtype::kAuto;
  options.moe.exact_float32 = false;
  if (const auto model = load_one_rank(paths.model, options))
    check_logits(*model, name, golden, "defaults, bf16 KV");
  options.dtype = ComputeDtype::kBfloat16;
  if (const auto model = load_one_rank(paths.model, options))
    check_logits(*model, name, golden, "bfloat16");
  options.kv_cache_dtype = KvCacheDtype::kFp8;
  if (const auto model = load_one_rank(paths.model, options))
    check_logits(*model, name, golden, "bfloat16, fp8 KV");
}

void run(const Paths& paths) {
  const auto golden = read_golden(paths.golden);
  for (const ActivationMode mode :
       {ActivationMode::kW4a16, ActivationMode::kW4a4, ActivationMode::kW4a4Dynamic}) {
    check_mode(paths, mode, golden);
    if (mode != ActivationMode::kW4a4Dynamic) check_layers(paths, mode, golden);
  }
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: golden_check MODEL_DIR GOLDEN_DIR [BACKEND]\n");
    return 2;
  }
  halfbyte::run({argv[1], argv[2], argc > 3 ? argv[3] : "cpu"});
  return 0;
}
