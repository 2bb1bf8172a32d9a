// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's tensors under their canonical meaning: linears, experts, plain tensors, scales.
// What the model loads from; no dialect is visible past this header.
#ifndef HALFBYTE_WEIGHTS_CHECKPOINT_WEIGHTS_H_
#define HALFBYTE_WEIGHTS_CHECKPOINT_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "checkpoint/directory.h"
#include "checkpoint/model_config.h"
#include "halfbyte/moe.h"

namespace halfbyte {

/// How a linear is stored (checkpoints.md section 3).
enum class LinearClass : std::int32_t {
  kDense = 0,
  kNvfp4 = 1,
  kFp8PerTensor = 2,
  kFp8PerChannel = 3,
  kFp8Block = 4,
  kMxfp8 = 5,
  kMxfp4 = 6,  // recognised; not supported as experts
};
std::string_view linear_class_name(LinearClass linear_class);

/// A linear with what its views point to. Move-only because converted scales are owned.
struct LoadedLinear {
  LinearClass linear_class = LinearClass::kDense;
  CanonicalMatrix matrix;
  float input_scale = 0.0F;  // 0: absent
  // [cols], NVFP4_AWQ: x is multiplied by it, column by column, before all else. Empty: none.
  std::vector<float> pre_quant_scale;
  std::vector<float> bias;  // empty: none
  std::unique_ptr<std::vector<float>> owned_scale;
  std::unique_ptr<std::vector<std::uint8_t>> owned_codes;  // when a dialect had to move bytes
  std::unique_ptr<std::vector<std::uint8_t>>
      owned_block_scale;  // when a NaN scale of a zero block was cleared
};

struct LoadedExpert {
  LoadedLinear gate;
  LoadedLinear up;
  LoadedLinear down;
  CanonicalExpert view() const { return {gate.matrix, up.matrix, down.matrix}; }
};

/// Facts of the routed experts of one layer, from headers and scalars only.
struct ExpertLayerInfo {
  WeightFormat format = WeightFormat::kNvfp4;
  bool declares_activation_quantization = false;
  ExpertInputScales input_scales;  // of all experts; empty when the mode needs none
};

struct LayerSummary {  // for inspect
  std::int64_t layer_idx = 0;
  std::string attention, router, experts, shared_experts, dense_mlp;
  std::string kv_scales;  // which of the two are there; empty: none
};

/// Layers that propose tokens, classified by their own tensors. Known and unused.
struct DraftSummary {
  std::string name;             // "layers.61" or "mtp"
  std::string experts, others;  // classes of their linears; empty: none
};

struct CheckpointSummary {
  std::vector<LayerSummary> layers;
  std::vector<DraftSummary> drafts;
  std::vector<std::pair<std::string, std::uint64_t>> bytes_by_class;
  std::vector<std::string> unused_tensors;  // known and unused
  std::vector<std::string> notices;
  std::int64_t num_tensors = 0;
  std::int64_t num_experts = 0;  // of all layers
  std::int64_t num_experts_with_input_scale = 0;
  // Gate/up global scale ratios: 1, below 1.5, below 2, below 4, 4 and more.
  std::array<std::int64_t, 5> gate_up_ratio_histogram = {};
  double saturated_block_scale_share = 0.0;  // share of 0x7E bytes; only after check_all_bytes
};

class Findings;
struct CheckpointReport;

/// Module paths are canonical: "layers.3.self_attn.q_proj", "layers.3.mlp.gate", "embed_tokens",
/// "norm", "lm_head" (the prefixes of checkpoints.md 5.1 are stripped).
class CheckpointWeights {
 public:
  /// Opens, classifies every tensor, and validates all scalars. Reads headers and scalars only.
  /// `config_overrides` are those of read_model_config().
  static Result<std::unique_ptr<CheckpointWeights>> open(const std::string& directory,
                                                         bool ignore_index,
                                                         std::shared_ptr<NoticeSink> notices,
                                                         std::string_view config_overrides = {});
  /// Opens as far as possible, reads every byte that matters and lists all that is wrong.
  static CheckpointReport check(const std::string& directory,
                                bool ignore_index,
                                std::shared_ptr<NoticeSink> notices);
  ~CheckpointWeights();

  const ModelConfig& config() const;

  /// A linear by module path; marks its tensors as consumed. kNotFound names the tensor and the
  /// shards read.
  Result<LoadedLinear> linear(std::string_view module, std::int64_t rows, std::int64_t cols);
  /// A plain tensor ("layers.3.input_layernorm.weight") widened to fp32; its element count must be
  /// `count`.
  Result<std::vector<float>> tensor_f32(std::string_view name, std::int64_t count);
  bool has_tensor(std::string_view name) const;

  /// Facts of a MoE layer. In kW4a4, missing or bad input scales of any expert are errors that list
  /// them all.
  Result<ExpertLayerInfo> expert_layer(std::int64_t layer_idx, ActivationMode mode);
  /// One expert of a layer, block scales validated (row and group named). Thread-safe.
  Result<LoadedExpert> expert(std::int64_t layer_idx, std::int64_t expert_idx);
  /// Lets the system drop the pages of an expert that was prepared.
  void drop_expert(std::int64_t layer_idx, std::int64_t expert_idx);

  /// KV-cache scales of a layer under checkpoints.md 2.3; {1, 1} with a notice when absent.
  Result<std::pair<float, float>> kv_scales(std::int64_t layer_idx);

  /// After loading: an error naming every tensor that was neither consumed nor known as unused, or
  /// a stored head that differs from the embedding it is tied to.
  Status check_all_consumed() const;
  /// Of the tensors that a model uses, as they are stored; after loading.
  std::int64_t used_bytes() const;
  /// Reads every byte that matters: scales of all linears and experts, FP8 values, KV-cache scales;
  /// up to 16 findings, then a count.
  Status check_all_bytes();
  CheckpointSummary summarize() const;

  struct Impl;  // of weights/ only

 private:
  explicit CheckpointWeights(std::unique_ptr<Impl> impl);
  void find_bad_bytes(Findings& findings);
  std::unique_ptr<Impl> impl_;
};

/// Everything that is wrong with a checkpoint.
struct CheckpointReport {
  std::vector<std::string> findings;           // a line each, none left out; empty: all is good
  std::unique_ptr<CheckpointWeights> weights;  // null when nothing could be opened
};

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_CHECKPOINT_WEIGHTS_H_
