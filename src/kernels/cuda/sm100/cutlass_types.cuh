// SPDX-License-Identifier: Apache-2.0
//
// CUTLASS's words for what one expert multiplies; every array of GroupArray holds one of these.
#ifndef HALFBYTE_KERNELS_CUDA_SM100_CUTLASS_TYPES_CUH_
#define HALFBYTE_KERNELS_CUDA_SM100_CUTLASS_TYPES_CUH_

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

namespace halfbyte::sm100 {

using CutlassProblem = cute::Shape<int, int, int>;  // rows, tokens, columns
using CutlassOperandStride = cute::Stride<std::int64_t, cute::_1, cute::_0>;  // along columns
using CutlassSumStride = cute::Stride<cute::_1, std::int64_t, cute::_0>;      // along weight rows
using CutlassScales = cutlass::detail::Sm1xxBlockScaledConfig<16>;
using CutlassScaleLayout = CutlassScales::LayoutSF;

static_assert(sizeof(CutlassProblem) <= group_entry_bytes(GroupArray::kProblem));
static_assert(sizeof(CutlassOperandStride) <= group_entry_bytes(GroupArray::kWeightStride));
static_assert(sizeof(CutlassSumStride) <= group_entry_bytes(GroupArray::kSumStride));
static_assert(sizeof(CutlassScaleLayout) <= group_entry_bytes(GroupArray::kWeightScaleLayout));

template <typename T>
HALFBYTE_HOST_DEVICE T* group_array(std::byte* groups, GroupArray array, int num_experts) {
  return reinterpret_cast<T*>(groups + group_array_offset(array, num_experts));
}

}  // namespace halfbyte::sm100

#endif  // HALFBYTE_KERNELS_CUDA_SM100_CUTLASS_TYPES_CUH_
