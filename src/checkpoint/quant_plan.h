// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_QUANT_PLAN_H_
#define HALFBYTE_CHECKPOINT_QUANT_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "halfbyte/result.h"

namespace halfbyte {

/// A compiled exclude or target pattern: a ModelOpt glob, or a compressed-tensors path, class or
/// "re:".
class ModulePattern;

/// What the configs say about quantisation. Tensors decide; this is the cross-check, and the only
/// source of "was activation quantisation declared".
struct QuantPlan {
  std::string algorithm;  // NVFP4, MIXED_PRECISION, ...; empty: none stated
  std::string producer;
  std::string kv_cache;  // FP8, NVFP4 or empty
  std::int64_t group_size = 16;
  std::vector<std::pair<std::string, std::string>>
      layers;  // quantized_layers: module or container -> algorithm
  std::vector<std::shared_ptr<const ModulePattern>> excludes;
  // compressed-tensors groups: true when every group has input_activations; unset otherwise.
  std::vector<bool> group_has_input_activations;

  /// Algorithm of a module by quantized_layers (longest container), else `algorithm`.
  std::string_view algorithm_of(std::string_view module) const;
  /// Whether a pattern of the exclude list names this module.
  bool excludes_module(std::string_view module) const;
};

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_QUANT_PLAN_H_
