// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_QUANT_CONFIG_H_
#define HALFBYTE_CHECKPOINT_QUANT_CONFIG_H_

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/quant_plan.h"

namespace halfbyte {

/// Merges every place where a checkpoint describes its quantisation (the shapes of checkpoints.md
/// section 4) into one plan. `hf_quant_config` is an empty object when there is no such file.
///
/// @return kUnsupported: an algorithm or method that is not known, by name; kCorruptData: a field
///         of the wrong type, or a pattern that does not compile.
Result<QuantPlan> read_quant_plan(const nlohmann::json& config,
                                  const nlohmann::json& hf_quant_config,
                                  NoticeSink& notices);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_QUANT_CONFIG_H_
