// SPDX-License-Identifier: Apache-2.0
//
// Weights in the layouts that grouped_gemm_nvfp4_nvfp4 reads, packed on the host: whole rows of
// codes, four block scales at a time.
#ifndef HALFBYTE_KERNELS_CUDA_SM100_PREPARE_WEIGHTS_H_
#define HALFBYTE_KERNELS_CUDA_SM100_PREPARE_WEIGHTS_H_

#include <span>

#include "formats/layout.h"
#include "halfbyte/moe.h"

namespace halfbyte::sm100 {

/// One expert's matrix: gate and up, or a single half, each of layout.shape's rows and columns, to
/// the layout's bytes of an expert (formats/pack with its index functions, and faster). Every byte
/// of codes [code_bytes_per_expert()] and block_scale [scale_bytes_per_expert()] is written.
void pack_expert(const WeightLayout& layout,
                 std::span<const CanonicalMatrix> halves,
                 std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> block_scale);

}  // namespace halfbyte::sm100

#endif  // HALFBYTE_KERNELS_CUDA_SM100_PREPARE_WEIGHTS_H_
