// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "command.h"
#include "halfbyte/backends.h"
#include "model/model.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::tool {
namespace {

constexpr std::int64_t kNumTokens = 8;
// Each of the two is within 2e-6 of the exact result (docs/numerics.md, w4a16 with fp32 h).
constexpr double kHostBound = 4e-6;
// bf16 h, against the plain oracle.
constexpr double kBf16Bound = 1.0 / 512.0;

struct CheckOptions {
  std::string model;
  bool ignore_index = false;
};

MoeOptions options_for(const std::string& backend) {
  MoeOptions options;
  options.runner_backend = backend;
  options.activation_mode = ActivationMode::kW4a16;
  options.exact_float32 = true;
  options.capacity_tokens = kNumTokens;
  return options;
}

/// Tokens, and ids that reach every expert when there are few enough.
struct Case {
  std::vector<float> x;
  std::vector<std::int32_t> topk_idx;
  std::vector<float> topk_weights;
  explicit Case(const MoeSpec& spec)
      : x(static_cast<std::size_t>(kNumTokens * spec.hidden_size)),
        topk_weights(static_cast<std::size_t>(kNumTokens * spec.top_k),
                     1.0F / static_cast<float>(spec.top_k)) {
    std::mt19937 rng(7);
    for (float& value : x)
      value = static_cast<float>(rng() % 2048) / 1024.0F - 1.0F;
    for (std::int64_t i = 0; i < kNumTokens * spec.top_k; ++i) {
      topk_idx.push_back(static_cast<std::int32_t>(i % spec.num_experts));
    }
  }
};

Result<std::vector<float>> run_layer(CheckpointWeights& weights,
                                     std::int64_t layer_idx,
                                     const MoeSpec& spec,
                                     const std::string& backend) {
  HALFBYTE_ASSIGN_OR_RETURN(auto layer, MoeLayer::create(spec, options_for(backend)));
  for (std::int64_t expert = 0; expert < spec.num_experts; ++expert) {
    HALFBYTE_ASSIGN_OR_RETURN(const LoadedExpert loaded, weights.expert(layer_idx, expert));
    HALFBYTE_RETURN_IF_ERROR(layer->load_expert(expert, loaded.view()));
  }
  HALFBYTE_RETURN_IF_ERROR(layer->finish_loading());
  const Case tokens(spec);
  std::vector<float> y(tokens.x.size());
  HALFBYTE_RETURN_IF_ERROR(
      layer->run(ConstMatrixView(tokens.x.data(), DType::kF32, kNumTokens, spec.hidden_size),
                 {tokens.topk_idx, tokens.topk_weights}, SharedExpert(),
                 MatrixView(y.data(), DType::kF32, kNumTokens, spec.hidden_size)));
  return y;
}

double relative_l2(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - double{want[i]}) * (double{got[i]} - double{want[i]});
    norm += double{want[i]} * double{want[i]};
  }
  return norm > 0.0 ? std::sqrt(error / norm) : std::sqrt(error);
}

/// Runs one layer's experts on every backend that can run here, against the reference backend.
void compare_backends(CheckpointWeights& weights, std::int64_t layer_idx) {
  const ExpertLayerInfo info =
      value_or_exit(weights.expert_layer(layer_idx, ActivationMode::kW4a16));
  ModelOptions float32;
  float32.dtype = ComputeDtype::kFloat32;
  const MoeSpec spec = moe_spec_of(weights.config(), info.format, float32);
  const auto want = value_or_exit(run_layer(weights, layer_idx, spec, "reference"));
  for (const BackendReport& report : list_backends(spec, options_for("auto"))) {
    if (report.transport != "local" || report.backend == "reference" || !report.can_run.ok()) {
      continue;
    }
    const auto got = value_or_exit(run_layer(weights, layer_idx, spec, report.backend));
    const double bound = report.backend.starts_with("cuda") ? kBf16Bound : kHostBound;
    const double error = relative_l2(got, want);
    fmt::print("layer {} on {}: relative L2 {:.2g} from reference, at most {:.2g}\n", layer_idx,
               report.backend, error, bound);
    if (!(error <= bound)) {
      exit_on_error(Status(StatusCode::kInternal,
                           fmt::format("{} disagrees with the reference backend on layer {}",
                                       report.backend, layer_idx)));
    }
  }
}

/// Prints every finding, and exits when there is one.
void exit_on_findings(const std::vector<std::string>& findings) {
  if (findings.empty()) return;
  for (const std::string& finding : findings)
    fmt::print(stderr, "error: {}\n", finding);
  fmt::print(stderr, "{} finding{}\n", findings.size(), findings.size() == 1 ? "" : "s");
  throw CLI::RuntimeError(1);
}

/// What a run would find beyond the bytes: tensors that the model lacks or does not use, and input
/// scales that only some modes read.
void check_use(CheckpointWeights& weights, NoticeSink& notices) {
  if (const Status status = check_architecture(weights.config()); !status.ok()) {
    notices.notice("model", fmt::format("the tensors outside the experts are not compared with a "
                                        "model: {}",
                                        status.message()));
    return;
  }
  std::vector<std::string> findings;
  for (const Status& status : check_model_tensors(weights))
    findings.push_back(status.to_string());
  exit_on_findings(findings);
  for (std::int64_t layer = 0; layer < weights.config().num_hidden_layers; ++layer) {
    if (!is_moe_layer(weights.config(), layer)) continue;
    const auto info = weights.expert_layer(layer, ActivationMode::kW4a16);
    if (!info.ok() || !info->declares_activation_quantization) continue;
    const auto w4a4 = weights.expert_layer(layer, ActivationMode::kW4a4);
    if (w4a4.ok()) continue;
    notices.notice(fmt::format("w4a4 {}", layer),
                   fmt::format("mode w4a4 will be refused: {}", w4a4.status().message()));
  }
}

void check(const CheckOptions& options) {
  exit_unless_folder(options.model);
  const auto notices = std::make_shared<NoticeSink>(print_notice);
  const CheckpointReport report =
      CheckpointWeights::check(options.model, options.ignore_index, notices);
  exit_on_findings(report.findings);
  check_use(*report.weights, *notices);
  const CheckpointSummary summary = report.weights->summarize();
  fmt::print(
      "{} tensors: scalars, shapes and block scales are good; {:.2f} % of the block scales "
      "are at the largest value\n",
      summary.num_tensors, 100.0 * summary.saturated_block_scale_share);
  for (const LayerSummary& layer : summary.layers) {
    if (layer.experts.empty()) continue;
    compare_backends(*report.weights, layer.layer_idx);
    break;
  }
}

}  // namespace

void add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "check",
      "Reads every byte of a checkpoint that matters and runs one layer on every backend; exit "
      "status 1 on any fault");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("model", options->model, "Directory of the checkpoint")
      ->type_name("MODEL")
      ->required();
  command->add_flag("--ignore-index", options->ignore_index,
                    "Read every safetensors file of the directory");
  command->callback([options] { check(*options); });
}

}  // namespace halfbyte::tool
