// SPDX-License-Identifier: Apache-2.0
//
// Rows of activations in E4M3 with a scale per 128 columns, as moe_decode_nvfp4 reads them. Host
// only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_E4M3_ROWS_H_
#define HALFBYTE_KERNELS_CUDA_SM90_E4M3_ROWS_H_

#include <cstdint>

#include "formats/host_device.h"
#include "formats/sm90_fp8_layout.h"
#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// From one row's scales to the next's: a multiple of four, which are one copy.
HALFBYTE_HOST_DEVICE constexpr std::int64_t block_scale_stride(std::int64_t cols) {
  return (cols + 4 * kFp8BlockCols - 1) / (4 * kFp8BlockCols) * 4;
}

struct E4m3RowsArgs {
  const void* x = nullptr;       // bf16 [rows, cols]
  void* dst = nullptr;           // fp16 [rows, cols]: E4M3 values
  float* block_scale = nullptr;  // [rows, block_scale_stride(cols)]
};

/// Values and scales of quantize_row_to_e4m3 (formats/e4m3_fold.h), bit for bit. Enqueues and
/// returns. `cols`: a multiple of 16.
Status launch_e4m3_rows(std::int64_t num_rows,
                        std::int64_t cols,
                        const E4m3RowsArgs& args,
                        CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_E4M3_ROWS_H_
