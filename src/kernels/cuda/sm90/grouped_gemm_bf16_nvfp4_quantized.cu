// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.cuh"

namespace halfbyte::sm90::grouped_gemm {

template <>
KernelPointer find_kernel<GemmOutput::kQuantized>(int tile_tokens) {
  switch (tile_tokens) {
    case 64:
      return grouped_gemm_kernel<64, GemmOutput::kQuantized>;
    case 160:
      return grouped_gemm_kernel<160, GemmOutput::kQuantized>;
    default:
      return nullptr;
  }
}

}  // namespace halfbyte::sm90::grouped_gemm
