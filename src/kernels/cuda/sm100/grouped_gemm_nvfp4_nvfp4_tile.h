// SPDX-License-Identifier: Apache-2.0
//
// One kernel a width of tile, each in a file of its own: CUTLASS takes a minute or two to compile.
#ifndef HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_TILE_H_
#define HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_TILE_H_

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

namespace halfbyte::sm100 {

template <int kTileTokens>
Status launch_tile(const GroupedGemmShape& shape,
                   const GroupedGemmConfig& config,
                   const GroupedGemmArgs& args,
                   CUstream_st* stream);
template <int kTileTokens>
std::size_t tile_scratch_bytes(const GroupedGemmConfig& config);

/// kDeviceError; nvcc does not take fmt's checked formats.
Status launch_failed(const GroupedGemmConfig& config, const char* cutlass, const char* cuda);

extern template Status launch_tile<kNarrowTile>(const GroupedGemmShape&,
                                                const GroupedGemmConfig&,
                                                const GroupedGemmArgs&,
                                                CUstream_st*);
extern template Status launch_tile<kWideTile>(const GroupedGemmShape&,
                                              const GroupedGemmConfig&,
                                              const GroupedGemmArgs&,
                                              CUstream_st*);
extern template std::size_t tile_scratch_bytes<kNarrowTile>(const GroupedGemmConfig&);
extern template std::size_t tile_scratch_bytes<kWideTile>(const GroupedGemmConfig&);

}  // namespace halfbyte::sm100

#endif  // HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_TILE_H_
