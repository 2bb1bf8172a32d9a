// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_REFERENCE_ACTIVATION_H_
#define HALFBYTE_KERNELS_REFERENCE_ACTIVATION_H_

#include "halfbyte/moe.h"

namespace halfbyte::reference {

/// h of one element from g = alpha_gate * acc_gate and u = alpha_up * acc_up (g is ignored by
/// kRelu2), with the portable sigmoid; products round left to right. A zero sigmoid gives +0 unless
/// u is NaN.
float activate(const ActivationSpec& spec, float g, float u);

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_ACTIVATION_H_
