// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.cuh"

namespace halfbyte::sm100 {

template Status launch_tile<kNarrowTile>(const GroupedGemmShape&,
                                         const GroupedGemmConfig&,
                                         const GroupedGemmArgs&,
                                         CUstream_st*);
template std::size_t tile_scratch_bytes<kNarrowTile>(const GroupedGemmConfig&);

}  // namespace halfbyte::sm100
