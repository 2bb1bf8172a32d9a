// SPDX-License-Identifier: Apache-2.0
//
// Decisions of the cuda_sm90 backend in mode w4a8, whose kernels are others: as cuda_sm90_plan.h.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM90_FP8_PLAN_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM90_FP8_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"
#include "moe/backends/cuda_backend.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Formats, bytes, kernels and workspace of a complete request; kUnsupported when a size does not
/// fit the kernels.
Status plan_sm90_fp8(ExpertPlan& plan);

/// What a step launches, with a quantiser before each.
struct Sm90Fp8Step {
  bool decode = true;  // both GEMMs in one launch; else one grouped GEMM after the other
  sm90::MoeDecodeShape decode_shape;
  sm90::MoeDecodeConfig decode_config;
  sm90::GroupedGemmFp8Shape gate_up, down;  // of !decode
  sm90::GroupedGemmFp8Config gate_up_config, down_config;

  std::string to_string() const;
  bool launches_the_same(const Sm90Fp8Step& other) const;
};

/// Of `num_tokens` tokens whose ids are spread evenly; right for every distribution. Allocates
/// nothing.
Sm90Fp8Step choose_sm90_fp8_step(const ExpertPlan& plan, std::int64_t num_tokens);
std::vector<StepRange<Sm90Fp8Step>> list_sm90_fp8_steps(const ExpertPlan& plan);

/// Where the plan's workspace holds what.
struct Sm90Fp8Operand {
  std::size_t values = 0, scales = 0;  // token tiles, of decode rows; the scales of their blocks
};
struct Sm90Fp8Workspace {
  Sm90Fp8Operand x, h;
  std::size_t h_f32 = 0;  // [routes, I], of decode padded
};
Sm90Fp8Workspace sm90_fp8_workspace(const ExpertPlan& plan);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM90_FP8_PLAN_H_
