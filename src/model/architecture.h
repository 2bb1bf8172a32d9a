// SPDX-License-Identifier: Apache-2.0
//
// What differs between model families: the attention of a layer and what a config may ask for.
// Everything else (embedding, norms, experts, head) is decoder.h.
#ifndef HALFBYTE_MODEL_ARCHITECTURE_H_
#define HALFBYTE_MODEL_ARCHITECTURE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/ops.h"
#include "model/scratch.h"

namespace halfbyte {

/// Reads and prepares a layer's tensors; names are canonical ("layers.3." is the prefix).
class LayerLoader {
 public:
  LayerLoader(CheckpointWeights& weights,
              const DenseOps& ops,
              const ModelOptions& options,
              std::string prefix)
      : weights_(weights), ops_(ops), options_(options), prefix_(std::move(prefix)) {}

  const ModelConfig& config() const { return weights_.config(); }
  const ModelOptions& options() const { return options_; }
  const DenseOps& ops() const { return ops_; }
  /// A linear [rows, cols] that follows --linear-activation-mode.
  Result<std::unique_ptr<PreparedLinear>> linear(std::string_view module,
                                                 std::int64_t rows,
                                                 std::int64_t cols);
  Result<LoadedLinear> raw_linear(std::string_view module, std::int64_t rows, std::int64_t cols);
  /// A plain tensor of `count` elements, widened to fp32.
  Result<std::vector<float>> vector(std::string_view name, std::int64_t count);

 private:
  CheckpointWeights& weights_;
  const DenseOps& ops_;
  const ModelOptions& options_;
  std::string prefix_;
};

/// The attention of one layer, weights included. Immutable; shared by the ranks of a process.
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;
  /// y = attention(h), both [num_tokens, hidden_size]; appends the tokens to `cache` first.
  /// `scratch` holds attention_scratch of the architecture.
  virtual void run(DenseOps& ops,
                   const StepView& step,
                   const KvLayer& cache,
                   float* scratch,
                   Rows h,
                   Rows y) const = 0;
};

/// One model family; an entry of the list in list.cpp.
struct Architecture {
  std::string_view name;  // architectures[0] of config.json
  /// Ok, or kUnsupported / kCorruptData naming what the config asks for.
  Status (*check)(const ModelConfig& config);
  RopeTable (*rope_table)(const ModelConfig& config);
  /// Floats that a layer's attention needs for a step of num_tokens.
  std::int64_t (*attention_scratch)(const ModelConfig& config, std::int64_t num_tokens);
  Result<std::unique_ptr<AttentionLayer>> (*load_attention)(LayerLoader& loader);
};

extern const Architecture kQwen3Moe;
extern const Architecture kDeepseekV3;

/// Every architecture of this build: the one place where they are listed.
const std::vector<const Architecture*>& list_architectures();
/// kUnsupported names the config's architecture and those that run.
Result<const Architecture*> find_architecture(const ModelConfig& config);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_ARCHITECTURE_H_
