// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CPU_ACTIVATION_AVX2_H_
#define HALFBYTE_KERNELS_CPU_ACTIVATION_AVX2_H_

#include <cstdint>

#include "halfbyte/moe.h"

namespace halfbyte::cpu {

/// Activate of kernel_table.h; needs AVX2 and FMA.
void activate_avx2(
    const ActivationSpec& spec, const float* g, const float* u, std::int64_t count, float* h);

/// AddWeighted of kernel_table.h; needs AVX2 and FMA.
void add_weighted_avx2(float weight, const float* row, std::int64_t count, bool first, float* acc);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_ACTIVATION_AVX2_H_
