// SPDX-License-Identifier: Apache-2.0
//
// Tokens quantised to NVFP4 (nvfp4-moe 5.2) and kept as bf16: code times block scale, exactly. So
// the w4a4 modes multiply with the kernels of bf16 tokens. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GRID_TOKENS_H_
#define HALFBYTE_KERNELS_CUDA_SM90_GRID_TOKENS_H_

#include <cstdint>

#include "halfbyte/status.h"
#include "kernels/cuda/common/nvfp4_quantize.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// Device pointers, 16-byte aligned. The decode-side scale is not in the result: a product's alpha
/// has it. A block with a value that is not finite becomes NaN.
struct GridTokensArgs {
  const void* x = nullptr;                     // bf16 [num_rows, cols]
  const cuda::QuantizeScale* scale = nullptr;  // [1]; null: each row finds its own
  void* grid = nullptr;                        // bf16 [num_rows, cols]; may be x
  float* row_scale = nullptr;                  // [num_rows]; written when `scale` is null
};

/// Enqueues and returns. `cols` is a multiple of 16.
Status launch_grid_tokens(std::int64_t num_rows,
                          std::int64_t cols,
                          const GridTokensArgs& args,
                          CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GRID_TOKENS_H_
