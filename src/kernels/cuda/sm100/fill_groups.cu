// SPDX-License-Identifier: Apache-2.0
//
// One block, a thread an expert: nothing of a step's routes is known to the host.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm100/cutlass_types.cuh"

namespace halfbyte::sm100 {
namespace {

struct FillParams {
  GroupFill gate_up, down;
  cuda::RouteTable routes;
  std::int32_t* first_block;
};

/// Sum of `value` over the threads before this one.
__device__ int sum_before(int value) {
  __shared__ int sums[kMaxExperts];
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = value;
  __syncthreads();
  for (int d = 1; d < kMaxExperts; d *= 2) {
    const int other = thread >= d ? sums[thread - d] : 0;
    __syncthreads();
    sums[thread] += other;
    __syncthreads();
  }
  return sums[thread] - value;
}

__device__ void fill_pointers(const GroupedGemmArgs& args,
                              const GroupOperands& at,
                              int experts,
                              int expert) {
  const auto set = [&](GroupArray array, const void* pointer) {
    group_array<const void*>(args.groups, array, experts)[expert] = pointer;
  };
  set(GroupArray::kWeightCodes, args.weight_codes + at.weight_codes);
  set(GroupArray::kWeightScale, args.weight_scale + at.weight_scale);
  set(GroupArray::kTokenCodes, args.token_codes + at.token_codes);
  set(GroupArray::kTokenScale, args.token_scale + at.token_scale);
  set(GroupArray::kSums, reinterpret_cast<const std::byte*>(args.sums) + at.sums);
  set(GroupArray::kAlpha, args.alpha == nullptr ? nullptr : args.alpha + expert);
}

__device__ void fill_shapes(const GroupedGemmArgs& args,
                            const GroupOperands& at,
                            int experts,
                            int expert) {
  const auto set = [&]<typename T>(GroupArray array, const T& value) {
    group_array<T>(args.groups, array, experts)[expert] = value;
  };
  set(GroupArray::kProblem, cute::make_shape(at.rows, at.tokens, at.cols));
  const auto along_cols = cute::make_stride(std::int64_t{at.cols}, cute::_1{}, cute::_0{});
  set(GroupArray::kWeightStride, along_cols);
  set(GroupArray::kTokenStride, along_cols);
  set(GroupArray::kSumStride, cute::make_stride(cute::_1{}, std::int64_t{at.rows}, cute::_0{}));
  const auto problem = cute::make_shape(at.rows, at.tokens, at.cols, 1);
  const CutlassScaleLayout weight_scales = CutlassScales::tile_atom_to_shape_SFA(problem);
  const CutlassScaleLayout token_scales = CutlassScales::tile_atom_to_shape_SFB(problem);
  set(GroupArray::kWeightScaleLayout, weight_scales);
  set(GroupArray::kTokenScaleLayout, token_scales);
}

__device__ void fill_group(const GroupFill& gemm,
                           const cuda::RouteTable& routes,
                           int expert,
                           int first_block) {
  const GroupOperands at = group_operands(gemm.weights, expert, routes.expert_offset[expert],
                                          routes.expert_count[expert], first_block);
  fill_pointers(gemm.args, at, routes.num_experts, expert);
  fill_shapes(gemm.args, at, routes.num_experts, expert);
}

__global__ void __launch_bounds__(kMaxExperts) fill_kernel(const __grid_constant__ FillParams p) {
  ptx::wait_for_previous_kernel();
  const int expert = static_cast<int>(threadIdx.x);
  const int experts = p.routes.num_experts;
  const int count = expert < experts ? p.routes.expert_count[expert] : 0;
  const int first_block = sum_before((count + 127) / 128);
  if (expert >= experts) return;
  p.first_block[expert] = first_block;
  fill_group(p.gate_up, p.routes, expert, first_block);
  fill_group(p.down, p.routes, expert, first_block);
}

}  // namespace

Status launch_fill_groups(const GroupFill& gate_up,
                          const GroupFill& down,
                          const cuda::RouteTable& routes,
                          std::int32_t* first_block,
                          CUstream_st* stream) {
  const FillParams params = {gate_up, down, routes, first_block};
  return cuda::launch_overlapped("fill_groups", fill_kernel, {dim3(1), kMaxExperts, 0}, stream,
                                 params);
}

}  // namespace halfbyte::sm100
