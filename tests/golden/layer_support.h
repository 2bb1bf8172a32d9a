// SPDX-License-Identifier: Apache-2.0
//
// One MoE layer of a checkpoint alone, fed with recorded inputs.
#ifndef HALFBYTE_TESTS_GOLDEN_LAYER_SUPPORT_H_
#define HALFBYTE_TESTS_GOLDEN_LAYER_SUPPORT_H_

#include "golden/model_support.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte {

/// How far a layer is from a recording of `x`, `topk_idx`, `topk_weights` and `y`.
struct LayerErrors {
  std::int64_t rows_with_other_experts = 0;  // as sets, routed from x
  double topk_weights = 0.0;                 // largest relative difference, expert by expert
  double y = 0.0;                            // relative L2, from the recorded ids and weights
};

/// Compares layer `layer_idx` with the tensors `prefix`x, `prefix`topk_idx, .. of `golden`.
LayerErrors compare_layer(CheckpointWeights& weights,
                          std::int64_t layer_idx,
                          const ModelOptions& options,
                          const std::map<std::string, GoldenTensor>& golden,
                          const std::string& prefix);

}  // namespace halfbyte

#endif  // HALFBYTE_TESTS_GOLDEN_LAYER_SUPPORT_H_
