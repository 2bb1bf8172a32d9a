// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_CUH_

#include "kernels/cuda/sm90/prepare_weights.h"

namespace halfbyte::sm90 {

/// The block scale of an element; 0 in the padding.
__device__ __forceinline__ std::uint8_t scale_of(const WeightLayout& layout,
                                                 const PrepareWeightsArgs& args,
                                                 const Element& element) {
  const WeightShape& shape = layout.shape;
  if (element.row >= shape.half_rows || element.col >= shape.cols) return 0;
  return args.block_scale[element.half][element.row * (shape.cols / 16) + element.col / 16];
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_PREPARE_WEIGHTS_CUH_
