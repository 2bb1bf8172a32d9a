// SPDX-License-Identifier: Apache-2.0
//
// Every decision of the cuda_sm100 backend, as pure functions of the plan: built and tested where
// there is no CUDA.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM100_PLAN_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM100_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"
#include "moe/backends/cuda_backend.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Ok, or the first of format, mode, dtype that the kernels do not take.
Status check_sm100_spec(const MoeSpec& spec, ActivationMode mode);

/// Fills the formats, the bytes and the workspace of a request; kUnsupported when a size or an
/// option does not fit the kernels.
Result<ExpertPlan> plan_sm100(ExpertPlan request);

/// The experts' matrices as they are prepared: those of make_sm100_layouts (formats), with columns
/// in multiples of 32 too.
WeightLayout sm100_gate_up(const ExpertPlan& plan);
WeightLayout sm100_down(const ExpertPlan& plan);

/// What a step launches.
struct Sm100Step {
  sm100::GroupedGemmShape gate_up, down;
  sm100::GroupedGemmConfig
      config;  // of both: it depends on the rows per expert, which are the same

  std::string to_string() const { return config.to_string() + ", twice"; }
  bool launches_the_same(const Sm100Step& other) const { return config == other.config; }
};

/// Of `num_tokens` tokens whose ids are spread evenly: that is what the host knows of a step. The
/// kernels are right for every distribution. Allocates nothing.
Sm100Step choose_sm100_step(const ExpertPlan& plan, std::int64_t num_tokens);

using Sm100Range = StepRange<Sm100Step>;
std::vector<Sm100Range> list_sm100_steps(const ExpertPlan& plan);

/// Where the plan's workspace holds what; offsets in the order in which a step writes.
struct Sm100Workspace {
  std::size_t first_block = 0;                      // int32 [L]
  std::size_t gate_up_groups = 0, down_groups = 0;  // sm100::GroupArray
  std::size_t scratch = 0;                          // CUTLASS's
  std::size_t x_codes = 0, x_scale = 0;             // of tokens, linear
  std::size_t x_row_scale = 0;                      // fp32 [tokens], w4a4_dynamic
  std::size_t route_codes = 0, route_scale = 0;     // x of routes, as the first GEMM reads them
  std::size_t sums = 0;                             // fp32 [routes, rows of gate_up]
  std::size_t h_codes = 0, h_scale = 0;             // of routes, as the second GEMM reads them
  std::size_t h_row_scale = 0;                      // fp32 [routes], w4a4_dynamic
};
Sm100Workspace sm100_workspace(const ExpertPlan& plan);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM100_PLAN_H_
