// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_QUANT_PLAN_H_
#define HALFBYTE_CHECKPOINT_QUANT_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "halfbyte/result.h"

namespace halfbyte {

/// A compiled exclude or target pattern: a ModelOpt glob, or a compressed-tensors path, class or
/// "re:".
class ModulePattern;

/// One entry of config_groups.
struct QuantGroup {
  std::vector<std::shared_ptr<const ModulePattern>> targets;
  bool has_input_activations = false;
};

struct QuantAlternative;

/// What the configs say about quantisation. Tensors decide; this is the cross-check, and the only
/// source of "was activation quantisation declared".
struct QuantPlan {
  std::string algorithm;  // NVFP4, MIXED_PRECISION, ...; empty: none stated
  std::string producer;
  std::string kv_cache;  // FP8, NVFP4 or empty
  std::int64_t group_size = 16;
  std::vector<std::int64_t> weight_block_size;  // FP8 block scales; empty: not stated
  std::vector<std::pair<std::string, std::string>>
      layers;  // quantized_layers: module or container (prefix stripped) -> algorithm, sorted
  std::vector<std::shared_ptr<const ModulePattern>> excludes;
  bool is_compressed_tensors = false;
  std::vector<QuantGroup> groups;
  std::shared_ptr<const QuantAlternative> alternative;  // null: the files agree

  /// Algorithm of a module by quantized_layers (longest container), else `algorithm`. `module` as
  /// the checkpoint spells it, with or without its prefix.
  std::string_view algorithm_of(std::string_view module) const;
  /// Whether a pattern of the exclude list names this module.
  bool excludes_module(std::string_view module) const;
  /// Whether the module's activations were meant to be quantised too; nothing when no config says.
  std::optional<bool> declares_activation_quantization(std::string_view module) const;
};

/// What another place says where it differs from the plan's; empty fields agree. The tensors tell
/// which is right (weights/).
struct QuantAlternative {
  std::string where;                                        // "hf_quant_config.json: quantization"
  std::string algorithm;                                    // another quant_algo
  std::vector<std::pair<std::string, std::string>> layers;  // other quantized_layers
};

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_QUANT_PLAN_H_
