// SPDX-License-Identifier: Apache-2.0
#include "golden/layer_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/reference/dense.h"

namespace halfbyte {
namespace {

Result<std::unique_ptr<MoeLayer>> load_layer(CheckpointWeights& weights,
                                             std::int64_t layer_idx,
                                             const ModelOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const ExpertLayerInfo info,
                            weights.expert_layer(layer_idx, options.moe.activation_mode));
  const MoeSpec spec = moe_spec_of(weights.config(), info.format, options);
  HALFBYTE_ASSIGN_OR_RETURN(auto layer, MoeLayer::create(spec, options.moe, info.input_scales));
  for (std::int64_t e = 0; e < spec.num_experts; ++e) {
    HALFBYTE_ASSIGN_OR_RETURN(const LoadedExpert expert, weights.expert(layer_idx, e));
    HALFBYTE_RETURN_IF_ERROR(layer->load_expert(e, expert.view()));
  }
  HALFBYTE_RETURN_IF_ERROR(layer->finish_loading());
  return layer;
}

struct Routed {
  std::vector<std::int32_t> idx;
  std::vector<float> weights;
};

Result<Routed> route(CheckpointWeights& weights,
                     std::int64_t layer_idx,
                     MoeLayer& layer,
                     const GoldenTensor& x) {
  const ModelConfig& config = weights.config();
  const std::string gate = fmt::format("layers.{}.mlp.gate", layer_idx);
  HALFBYTE_ASSIGN_OR_RETURN(const LoadedLinear router,
                            weights.linear(gate, config.num_experts, config.hidden_size));
  std::vector<float> bias;
  if (weights.has_tensor(gate + ".e_score_correction_bias")) {
    HALFBYTE_ASSIGN_OR_RETURN(
        bias, weights.tensor_f32(gate + ".e_score_correction_bias", config.num_experts));
  }
  const std::int64_t tokens = x.shape[0];
  std::vector<float> logits(static_cast<std::size_t>(tokens * config.num_experts));
  reference::linear(router.matrix, nullptr, x.f32.data(), tokens, logits.data());
  Routed routed;
  routed.idx.resize(static_cast<std::size_t>(tokens * config.num_experts_per_tok));
  routed.weights.resize(routed.idx.size());
  HALFBYTE_RETURN_IF_ERROR(
      layer.route(ConstMatrixView(logits.data(), DType::kF32, tokens, config.num_experts), bias,
                  routed.idx, routed.weights));
  return routed;
}

// Rows are compared as sets: the recording's order of slots is another.
void compare_routes(const Routed& got,
                    const GoldenTensor& idx,
                    const GoldenTensor& weights,
                    LayerErrors& errors) {
  const auto top_k = static_cast<std::size_t>(idx.shape[1]);
  for (std::size_t first = 0; first < idx.i32.size(); first += top_k) {
    bool same = true;
    for (std::size_t i = first; i < first + top_k; ++i) {
      const auto begin = got.idx.begin() + static_cast<std::ptrdiff_t>(first);
      const auto found = std::find(begin, begin + static_cast<std::ptrdiff_t>(top_k), idx.i32[i]);
      same = same && found != begin + static_cast<std::ptrdiff_t>(top_k);
      if (!same) break;
      const float weight = got.weights[static_cast<std::size_t>(found - got.idx.begin())];
      errors.topk_weights = std::max(
          errors.topk_weights,
          std::abs(static_cast<double>(weight) / static_cast<double>(weights.f32[i]) - 1.0));
    }
    if (!same) ++errors.rows_with_other_experts;
  }
}

double relative_l2(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

Result<LayerErrors> compare(CheckpointWeights& weights,
                            std::int64_t layer_idx,
                            const ModelOptions& options,
                            const std::map<std::string, GoldenTensor>& golden,
                            const std::string& prefix) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto layer, load_layer(weights, layer_idx, options));
  const GoldenTensor& x = golden.at(prefix + "x");
  const GoldenTensor& idx = golden.at(prefix + "topk_idx");
  const GoldenTensor& topk_weights = golden.at(prefix + "topk_weights");
  const GoldenTensor& y = golden.at(prefix + "y");
  HALFBYTE_ASSIGN_OR_RETURN(const Routed routed, route(weights, layer_idx, *layer, x));
  LayerErrors errors;
  compare_routes(routed, idx, topk_weights, errors);
  std::vector<float> got(y.f32.size());
  HALFBYTE_RETURN_IF_ERROR(
      layer->run(ConstMatrixView(x.f32.data(), DType::kF32, x.shape[0], x.shape[1]),
                 {idx.i32, topk_weights.f32}, {},
                 MatrixView(got.data(), DType::kF32, y.shape[0], y.shape[1])));
  errors.y = relative_l2(got, y.f32);
  return errors;
}

}  // namespace

LayerErrors compare_layer(CheckpointWeights& weights,
                          std::int64_t layer_idx,
                          const ModelOptions& options,
                          const std::map<std::string, GoldenTensor>& golden,
                          const std::string& prefix) {
  auto errors = compare(weights, layer_idx, options, golden, prefix);
  EXPECT_TRUE(errors.ok()) << (errors.ok() ? "" : errors.status().to_string());
  return errors.ok() ? *errors : LayerErrors{1 << 20, 1.0, 1.0};
}

}  // namespace halfbyte
