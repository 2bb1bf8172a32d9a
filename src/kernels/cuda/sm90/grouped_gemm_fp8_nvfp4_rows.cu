// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.cuh"

namespace halfbyte::sm90::grouped_gemm_fp8 {

template <>
KernelPointer find_kernel<GemmOutput::kRows>(int tile_tokens) {
  switch (tile_tokens) {
    case 16:
      return grouped_gemm_fp8_kernel<16, GemmOutput::kRows>;
    case 64:
      return grouped_gemm_fp8_kernel<64, GemmOutput::kRows>;
    case 160:
      return grouped_gemm_fp8_kernel<160, GemmOutput::kRows>;
    default:
      return nullptr;
  }
}

}  // namespace halfbyte::sm90::grouped_gemm_fp8
