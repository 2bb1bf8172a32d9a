// SPDX-License-Identifier: Apache-2.0
//
// Canonical weights of one expert -> formats/sm90_layout.h, on the device. Host only: no CUDA
// header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_
#define HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_

#include <cstdint>

#include "formats/sm90_layout.h"
#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// Device pointers; second half (up) only when the layout has two.
struct PrepareWeightsArgs {
  const std::uint8_t* codes[2] = {};        // [half_rows, cols / 2] each
  const std::uint8_t* block_scale[2] = {};  // [half_rows, cols / 16] each
  std::uint8_t* dst = nullptr;              // [layout.bytes()]; the expert's part is written whole
};

/// kUnsupported unless cols is a multiple of 16 and there are one or two halves.
Status can_run(const WeightShape& shape);
/// Enqueues and returns. Codes of blocks with scale zero become +0; padding is zero.
Status launch(const WeightLayout& layout,
              std::int64_t expert_idx,
              const PrepareWeightsArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_
