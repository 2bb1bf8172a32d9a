// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_SPEC_H_
#define HALFBYTE_MOE_SPEC_H_

#include <string_view>

#include "halfbyte/moe.h"

namespace halfbyte {

/// What every backend refuses alike: sizes, k against E, groups, activation parameters, input
/// weighting.
Status check_spec(const MoeSpec& spec);

/// The activation of a config's `hidden_act` and parameters (nvfp4-moe 6); unknown names are
/// kUnsupported.
std::string_view activation_function_name(ActivationFunction function);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_SPEC_H_
