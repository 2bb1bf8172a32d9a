// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MODEL_WEIGHTS_H_
#define HALFBYTE_MODEL_WEIGHTS_H_

#include <memory>
#include <vector>

#include "model/architecture.h"

namespace halfbyte {

/// A gated feed-forward block of width `up->rows`: a dense layer's, or the shared experts'.
struct DenseMlp {
  std::unique_ptr<PreparedLinear> gate, up, down;
};

/// One decoder layer without its routed experts.
struct LayerWeights {
  std::vector<float> input_norm;           // [hidden_size]
  std::vector<float> post_attention_norm;  // [hidden_size]
  std::unique_ptr<AttentionLayer> attention;
  DenseMlp mlp;  // of a dense layer, or the shared experts of a MoE layer; empty: none
  std::unique_ptr<PreparedLinear> router;  // [num_experts, hidden_size]; null: a dense layer
  std::vector<float> router_bias;          // [num_experts], or empty
};

/// All weights but the routed experts. Immutable; the ranks of a process share one.
class SharedWeights {
 public:
  static Result<std::shared_ptr<const SharedWeights>> load(CheckpointWeights& weights,
                                                           const Architecture& architecture,
                                                           const ModelOptions& options,
                                                           const DenseOps& ops);
  /// Loads each part and drops it again: the first fault of the vocabulary, the last norm and every
  /// layer.
  static std::vector<Status> find_faults(CheckpointWeights& weights,
                                         const Architecture& architecture,
                                         const ModelOptions& options,
                                         const DenseOps& ops);

  ModelConfig config;
  const Architecture* architecture = nullptr;
  std::unique_ptr<PreparedEmbedding> embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> norm;  // [hidden_size]
  std::unique_ptr<PreparedLinear> head;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_WEIGHTS_H_
