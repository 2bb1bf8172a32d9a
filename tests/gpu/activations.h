// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_GPU_ACTIVATIONS_H_
#define HALFBYTE_TESTS_GPU_ACTIVATIONS_H_

#include "halfbyte/moe.h"

namespace halfbyte::test {

/// Each activation function, with numbers that change what it gives.
inline constexpr ActivationSpec kActivations[] = {
    {},
    {ActivationFunction::kSwigluClamped, 1.702F, 1.0F, 0.75F},
    {ActivationFunction::kRelu2},
    {ActivationFunction::kGegluTanh}};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_GPU_ACTIVATIONS_H_
