// SPDX-License-Identifier: Apache-2.0
//
// The kernel, put together from CUTLASS's parts: TMA loads, block-scaled tcgen05 products of E2M1
// with E4M3 scales per 16, fp32 sums in tensor memory, a TMA store. A tile's sums run over all
// columns in one CTA, in steps that do not depend on its width: the bits of a route should depend
// on nobody else's. Never run.
#ifndef HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_CUH_

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <type_traits>

#include "kernels/cuda/sm100/cutlass_types.cuh"
#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4_tile.h"

namespace halfbyte::sm100 {

template <int kTileTokens>
struct CutlassGemm {
  using Element = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
  using Tile = cute::Shape<cute::Int<kTileRows>, cute::Int<kTileTokens>, cute::Int<kTileCols>>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using SumLayout = cutlass::layout::ColumnMajor;  // a token's sums lie together
  static constexpr int kElementsOf16Bytes = 32;
  static constexpr int kSumsOf16Bytes = 4;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm100,
      cutlass::arch::OpClassBlockScaledTensorOp,
      Tile,
      Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto,
      float,
      float,
      void,
      SumLayout*,
      kSumsOf16Bytes,
      float,
      SumLayout*,
      kSumsOf16Bytes,
      cutlass::epilogue::PtrArrayTmaWarpSpecialized1Sm>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm100,
      cutlass::arch::OpClassBlockScaledTensorOp,
      Element,
      cutlass::layout::RowMajor*,
      kElementsOf16Bytes,
      Element,
      cutlass::layout::ColumnMajor*,
      kElementsOf16Bytes,
      float,
      Tile,
      Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmNvf4Sm100>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::
      GemmUniversal<cutlass::gemm::GroupProblemShape<CutlassProblem>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static_assert(std::is_same_v<typename Kernel::InternalStrideA, CutlassOperandStride>);
  static_assert(std::is_same_v<typename Kernel::InternalStrideB, CutlassOperandStride>);
  static_assert(std::is_same_v<typename Kernel::InternalStrideD, CutlassSumStride>);
  static_assert(std::is_same_v<typename Mainloop::InternalLayoutSFA, CutlassScaleLayout>);
  static_assert(std::is_same_v<typename Mainloop::InternalLayoutSFB, CutlassScaleLayout>);
};

/// Everything that an expert has of its own is read from the arrays, on the device.
template <typename Gemm>
typename Gemm::Arguments make_arguments(const GroupedGemmConfig& config,
                                        const GroupedGemmArgs& args,
                                        int experts) {
  using enum GroupArray;
  using Code = typename Gemm::GemmKernel::CollectiveMainloop::ElementA;
  using Scale = typename Gemm::GemmKernel::CollectiveMainloop::ElementSF;
  std::byte* const groups = args.groups;
  typename Gemm::Arguments out;
  out.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  out.problem_shape = {experts, group_array<CutlassProblem>(groups, kProblem, experts), nullptr};
  out.mainloop.ptr_A = group_array<const Code*>(groups, kWeightCodes, experts);
  out.mainloop.dA = group_array<CutlassOperandStride>(groups, kWeightStride, experts);
  out.mainloop.ptr_B = group_array<const Code*>(groups, kTokenCodes, experts);
  out.mainloop.dB = group_array<CutlassOperandStride>(groups, kTokenStride, experts);
  out.mainloop.ptr_SFA = group_array<const Scale*>(groups, kWeightScale, experts);
  out.mainloop.layout_SFA = group_array<CutlassScaleLayout>(groups, kWeightScaleLayout, experts);
  out.mainloop.ptr_SFB = group_array<const Scale*>(groups, kTokenScale, experts);
  out.mainloop.layout_SFB = group_array<CutlassScaleLayout>(groups, kTokenScaleLayout, experts);
  out.epilogue.ptr_D = group_array<float*>(groups, kSums, experts);
  out.epilogue.dD = group_array<CutlassSumStride>(groups, kSumStride, experts);
  out.epilogue.thread.alpha = 1.0F;
  if (args.alpha != nullptr) {
    out.epilogue.thread.alpha_ptr_array = group_array<const float*>(groups, kAlpha, experts);
    out.epilogue.thread.dAlpha = {cute::_0{}, cute::_0{}, 1};
  }
  out.hw_info.sm_count = config.num_ctas;
  return out;
}

template <int kTileTokens>
std::size_t tile_scratch_bytes(const GroupedGemmConfig& config) {
  using Gemm = typename CutlassGemm<kTileTokens>::Gemm;
  return Gemm::get_workspace_size(make_arguments<Gemm>(config, {}, 1));
}

template <int kTileTokens>
Status launch_tile(const GroupedGemmShape& shape,
                   const GroupedGemmConfig& config,
                   const GroupedGemmArgs& args,
                   CUstream_st* stream) {
  using Gemm = typename CutlassGemm<kTileTokens>::Gemm;
  const auto experts = static_cast<int>(shape.weights.shape.num_experts);
  Gemm gemm;
  cutlass::Status status =
      gemm.initialize(make_arguments<Gemm>(config, args, experts), args.scratch, stream);
  if (status == cutlass::Status::kSuccess) status = gemm.run(stream);
  if (status == cutlass::Status::kSuccess) return {};
  return launch_failed(config, cutlassGetStatusString(status),
                       cudaGetErrorString(cudaGetLastError()));
}

}  // namespace halfbyte::sm100

#endif  // HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_CUH_
