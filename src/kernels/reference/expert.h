// SPDX-License-Identifier: Apache-2.0
//
// One expert on one row, in plain loops: the definition of what every backend computes
// (docs/numerics.md 2). Sums in fp64, each accumulator rounded to fp32 once.
#ifndef HALFBYTE_KERNELS_REFERENCE_EXPERT_H_
#define HALFBYTE_KERNELS_REFERENCE_EXPERT_H_

#include <cstdint>
#include <span>

#include "halfbyte/moe.h"

namespace halfbyte::reference {

/// The scalars of one expert in one mode (docs/numerics.md 2). s1, s2 are used by kW4a4 only.
struct ExpertScalars {
  float gate_global_scale = 1.0F;
  float up_global_scale = 1.0F;
  float down_global_scale = 1.0F;
  float s1 = 1.0F;  // decode-side scale of X: max over all experts, gate and up
  float s2 = 1.0F;  // decode-side scale of h: max over all experts
};

/// Stages that tests look at; every pointer may be null.
struct ExpertTaps {
  float* h = nullptr;                     // [I] after the activation, before requantisation
  std::uint8_t* h_codes = nullptr;        // [I / 2]
  std::uint8_t* h_block_scale = nullptr;  // [I / 16]
  float* h_row_scale = nullptr;           // [1], kW4a4Dynamic
};

/// y [H] = expert(x [H]), unweighted. `x` is the activation as given, widened to fp32; the modes
/// quantise it here, so X is quantised per route with the same result as once per token.
void run_expert_row(const CanonicalExpert& expert,
                    const ActivationSpec& activation,
                    ActivationMode mode,
                    const ExpertScalars& scalars,
                    const float* x,
                    float* y,
                    const ExpertTaps& taps = {});

/// The same for an x that came quantised (codes [H / 2], block_scale [H / 16], row_scale as in the
/// mode).
void run_expert_row_quantized(const CanonicalExpert& expert,
                              const ActivationSpec& activation,
                              ActivationMode mode,
                              const ExpertScalars& scalars,
                              const std::uint8_t* x_codes,
                              const std::uint8_t* x_block_scale,
                              float x_row_scale,
                              float* y,
                              const ExpertTaps& taps = {});

}  // namespace halfbyte::reference

#endif  // HALFBYTE_KERNELS_REFERENCE_EXPERT_H_
