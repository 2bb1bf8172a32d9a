// SPDX-License-Identifier: Apache-2.0
//
// Canonical weights of one expert -> formats/sm90_layout.h or sm90_fp8_layout.h, on the device.
// Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_
#define HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_

#include <cstdint>

#include "formats/sm90_fp8_layout.h"
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

/// For w4a8.
struct PrepareFp8WeightsArgs {
  PrepareWeightsArgs weights;
  float* row_factor = nullptr;  // [num_experts, layout.rows()], stored order: what the row's sums
                                // are multiplied with, a power of two
  /// Is added to: blocks so far below their row's largest scale that their codes were rounded
  /// again, which costs at most 1.3e-4 of the row's largest product.
  unsigned long long* num_blocks_below = nullptr;
};
/// Enqueues and returns; `layout` is a fp8_layout().
Status launch(const WeightLayout& layout,
              std::int64_t expert_idx,
              const PrepareFp8WeightsArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_H_
