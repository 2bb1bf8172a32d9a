// SPDX-License-Identifier: Apache-2.0
//
// The routed experts of one layer, classified and with their scalars read. Inside weights/ only.
#ifndef HALFBYTE_WEIGHTS_EXPERT_LAYER_H_
#define HALFBYTE_WEIGHTS_EXPERT_LAYER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/model_config.h"
#include "weights/classify.h"
#include "weights/dialects/stacked.h"
#include "weights/findings.h"

namespace halfbyte {

struct ExpertLayer {
  std::int64_t layer_idx = 0;
  const ExpertTensors* tensors = nullptr;
  std::int64_t num_experts = 0;
  bool gated = true;
  bool is_good = false;                           // every expert is there and classified
  std::array<LinearKind, kNumProjections> kinds;  // the same for every expert
  StackForm form;                                 // of stacked experts
  std::vector<std::array<float, kNumProjections>> global_scales;  // NVFP4; multiply

  const LinearKind& kind(Projection p) const { return kinds[static_cast<std::size_t>(p)]; }
  /// How all projections are stored; nothing when they differ.
  std::optional<LinearClass> common_class() const;
  bool has(Projection p) const { return gated || p != Projection::kGate; }
};

/// Classifies all experts of a layer and reads their global scales; every fault goes into
/// `findings`.
ExpertLayer build_expert_layer(std::int64_t layer_idx,
                               const ExpertTensors& tensors,
                               const ModelConfig& config,
                               const RawTensors& raw,
                               Findings& findings);

/// Reads the global scales of an NVFP4 layer whose kinds are known; absent and bad ones are
/// findings.
void read_global_scales(ExpertLayer& layer, const RawTensors& raw, Findings& findings);

/// Input scales of all experts (shape [E, 2] or [E, 1] for gate_up, [E] for down), in the form that
/// multiplies back. kNotFound: absent for some, kCorruptData: bad for some; all are named.
Result<ExpertInputScales> read_input_scales(const ExpertLayer& layer, const RawTensors& raw);

/// Whether any expert of the layer has an input scale in the file, and for how many.
std::int64_t count_input_scales(const ExpertLayer& layer);

/// One scalar of an NVFP4 linear in the form that multiplies: a reciprocal is inverted with one
/// rounding. No check on the value. kCorruptData: shape or dtype.
Result<float> read_scalar(const RawTensor& tensor, bool is_reciprocal);

/// Finite and > 0.
bool is_good_scale(float value);

/// " (model-00001-of-00002.safetensors)"
std::string in_file(const RawTensor& tensor, const RawTensors& raw);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_EXPERT_LAYER_H_
