// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_QUANTIZATION_H_
#define HALFBYTE_ENGINE_QUANTIZATION_H_

#include <string>

#include "checkpoint/quant_plan.h"
#include "halfbyte/status.h"

namespace halfbyte {

/// What a checkpoint's configs say, in the words of EngineOptions::quantization: "modelopt_fp4",
/// "modelopt_mixed", "compressed-tensors"; else the algorithm as it is spelled there, or "none".
std::string quantization_name(const QuantPlan& plan);

/// kInvalidArgument unless `wanted` is "auto" or what the configs say.
Status check_quantization(const std::string& wanted, const QuantPlan& plan);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_QUANTIZATION_H_
