// SPDX-License-Identifier: Apache-2.0
#include "engine/quantization.h"

#include <fmt/format.h>

namespace halfbyte {

std::string quantization_name(const QuantPlan& plan) {
  if (plan.is_compressed_tensors) return "compressed-tensors";
  if (plan.algorithm == "MIXED_PRECISION" || !plan.layers.empty()) return "modelopt_mixed";
  if (plan.algorithm.find("NVFP4") != std::string::npos) return "modelopt_fp4";
  return plan.algorithm.empty() ? "none" : plan.algorithm;
}

Status check_quantization(const std::string& wanted, const QuantPlan& plan) {
  const std::string stated = quantization_name(plan);
  if (wanted == "auto" || wanted == stated) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--quantization is {}, but the checkpoint's config says {}: leave the option "
                      "out; what each tensor is follows from the files in any case",
                      wanted, stated)};
}

}  // namespace halfbyte
