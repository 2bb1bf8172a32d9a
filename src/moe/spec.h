// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_SPEC_H_
#define HALFBYTE_MOE_SPEC_H_

#include <string_view>

#include "halfbyte/moe.h"

namespace halfbyte {

/// What every backend refuses alike: sizes, k against E, groups, activation parameters, input
/// weighting.
Status check_spec(const MoeSpec& spec);

/// "swiglu", "swiglu_clamped", "relu2", "geglu_tanh".
std::string_view activation_function_name(ActivationFunction function);

/// "nvfp4", "fp8", "bf16", "f16", "f32".
std::string_view weight_format_name(WeightFormat format);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_SPEC_H_
