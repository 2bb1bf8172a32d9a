// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "command.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::tool {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  bool ignore_index = false;
};

std::string describe(const LayerSummary& layer) {
  std::string text = fmt::format("attention {}", layer.attention.empty() ? "-" : layer.attention);
  const std::pair<std::string_view, const std::string*> parts[] = {
      {"router", &layer.router},
      {"experts", &layer.experts},
      {"shared expert", &layer.shared_experts},
      {"mlp", &layer.dense_mlp}};
  for (const auto& [name, value] : parts) {
    if (!value->empty()) text += fmt::format(", {} {}", name, *value);
  }
  return text + fmt::format(", KV scales {}", layer.kv_scales.empty() ? "none" : layer.kv_scales);
}

/// One line per run of equal layers.
void print_layers(const std::vector<LayerSummary>& layers) {
  for (std::size_t i = 0; i < layers.size();) {
    const std::string text = describe(layers[i]);
    std::size_t end = i + 1;
    while (end < layers.size() && describe(layers[end]) == text)
      ++end;
    const std::string range =
        end - i == 1 ? fmt::format("layer {}", layers[i].layer_idx)
                     : fmt::format("layers {}-{}", layers[i].layer_idx, layers[end - 1].layer_idx);
    fmt::print("{}: {}\n", range, text);
    i = end;
  }
}

void print_drafts(const std::vector<DraftSummary>& drafts) {
  for (const DraftSummary& draft : drafts) {
    fmt::print("draft {}: {}{}{}{}, unused\n", draft.name, draft.others,
               draft.others.empty() || draft.experts.empty() ? "" : ", ",
               draft.experts.empty() ? "" : "experts ", draft.experts);
  }
}

void print_unused(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 16;
  if (names.empty()) return;
  fmt::print("known and unused: {} tensors\n", names.size());
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    fmt::print("  {}\n", names[i]);
  }
  if (names.size() > kMaxNames) {
    fmt::print("  and {} more (--json lists all)\n", names.size() - kMaxNames);
  }
}

void print_text(const ModelConfig& config, const CheckpointSummary& summary) {
  fmt::print("architecture: {} ({})\n",
             config.architecture.empty() ? "not stated" : config.architecture, config.model_type);
  fmt::print("hidden size {}, {} layers, {} experts of width {}, {} per token\n",
             config.hidden_size, config.num_hidden_layers, config.num_experts,
             config.moe_intermediate_size, config.num_experts_per_tok);
  fmt::print("quantisation: {}{}{}\n",
             config.quant.algorithm.empty() ? "no algorithm stated" : config.quant.algorithm,
             config.quant.producer.empty() ? "" : ", written by " + config.quant.producer,
             config.quant.kv_cache.empty() ? "" : ", KV cache " + config.quant.kv_cache);
  print_layers(summary.layers);
  print_drafts(summary.drafts);
  fmt::print("experts with input scales: {} of {}\n", summary.num_experts_with_input_scale,
             summary.num_experts);
  const auto& ratios = summary.gate_up_ratio_histogram;
  fmt::print("gate/up global scale ratios: 1: {}, < 1.5: {}, < 2: {}, < 4: {}, 4 and more: {}\n",
             ratios[0], ratios[1], ratios[2], ratios[3], ratios[4]);
  fmt::print("{} tensors:\n", summary.num_tensors);
  for (const auto& [name, bytes] : summary.bytes_by_class) {
    fmt::print("  {}: {} bytes\n", name, bytes);
  }
  print_unused(summary.unused_tensors);
}

nlohmann::ordered_json layers_to_json(const std::vector<LayerSummary>& summaries) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerSummary& layer : summaries) {
    layers.push_back({{"layer", layer.layer_idx},
                      {"attention", layer.attention},
                      {"router", layer.router},
                      {"experts", layer.experts},
                      {"shared_experts", layer.shared_experts},
                      {"mlp", layer.dense_mlp},
                      {"kv_scales", layer.kv_scales}});
  }
  return layers;
}

nlohmann::ordered_json drafts_to_json(const std::vector<DraftSummary>& summaries) {
  nlohmann::ordered_json drafts = nlohmann::ordered_json::array();
  for (const DraftSummary& draft : summaries) {
    drafts.push_back({{"name", draft.name}, {"experts", draft.experts}, {"others", draft.others}});
  }
  return drafts;
}

nlohmann::ordered_json to_json(const ModelConfig& config, const CheckpointSummary& summary) {
  nlohmann::ordered_json bytes;
  for (const auto& [name, count] : summary.bytes_by_class)
    bytes[name] = count;
  return {{"architecture", config.architecture},
          {"model_type", config.model_type},
          {"num_hidden_layers", config.num_hidden_layers},
          {"hidden_size", config.hidden_size},
          {"num_experts", config.num_experts},
          {"num_experts_per_tok", config.num_experts_per_tok},
          {"moe_intermediate_size", config.moe_intermediate_size},
          {"num_draft_layers", config.num_draft_layers},
          {"quant_algo", config.quant.algorithm},
          {"producer", config.quant.producer},
          {"kv_cache", config.quant.kv_cache},
          {"num_tensors", summary.num_tensors},
          {"experts_with_input_scale", summary.num_experts_with_input_scale},
          {"experts_of_all_layers", summary.num_experts},
          {"gate_up_ratio_histogram", summary.gate_up_ratio_histogram},
          {"bytes_by_class", bytes},
          {"layers", layers_to_json(summary.layers)},
          {"draft_layers", drafts_to_json(summary.drafts)},
          {"unused_tensors", summary.unused_tensors},
          {"notices", summary.notices}};
}

void inspect(const InspectOptions& options) {
  exit_unless_folder(options.model);
  const auto notices = std::make_shared<NoticeSink>(print_notice);
  const auto weights =
      value_or_exit(CheckpointWeights::open(options.model, options.ignore_index, notices));
  if (options.json) {
    print_json(to_json(weights->config(), weights->summarize()));
  } else {
    print_text(weights->config(), weights->summarize());
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a checkpoint holds: reads headers and scalars only");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("model", options->model, "Directory of the checkpoint")->type_name("MODEL");
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->add_flag("--ignore-index", options->ignore_index,
                    "Read every safetensors file of the directory");
  add_inspect_backends(*command);
  command->callback([command, options] {
    if (!command->get_subcommands().empty()) return;
    if (options->model.empty()) throw CLI::RequiredError("MODEL");
    inspect(*options);
  });
}

}  // namespace halfbyte::tool
