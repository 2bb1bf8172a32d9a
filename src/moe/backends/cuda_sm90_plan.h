// SPDX-License-Identifier: Apache-2.0
//
// Every decision of the cuda_sm90 backend, as pure functions of the plan: built and tested where
// there is no CUDA.
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM90_PLAN_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM90_PLAN_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"
#include "moe/backends/cuda_backend.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// Ok, or the first of format, mode, dtype that the kernels do not take.
Status check_sm90_spec(const MoeSpec& spec, ActivationMode mode);

/// Fills the formats, the bytes and the workspace of a request; kUnsupported when a size or an
/// option does not fit the kernels.
Result<ExpertPlan> plan_sm90(ExpertPlan request);

/// What a step launches; in w4a8 it is another (cuda_sm90_fp8_plan.h).
struct Sm90Step {
  bool decode = true;  // both GEMMs in one launch; else one grouped GEMM after the other
  sm90::MoeDecodeShape decode_shape;
  sm90::MoeDecodeConfig decode_config;
  sm90::GroupedGemmShape gate_up, down;  // of !decode
  sm90::GroupedGemmConfig gate_up_config, down_config;

  std::string to_string() const;
  bool launches_the_same(const Sm90Step& other) const;
};

/// Tokens of a tile that both grouped GEMMs of the plan's mode are compiled for.
std::span<const int> list_sm90_tile_tokens(const ExpertPlan& plan);

/// Of `num_tokens` tokens: the plan's tactic, else what is best when ids are spread evenly, which
/// is what the host knows of a step. The kernels are right for every distribution. Allocates
/// nothing.
Sm90Step choose_sm90_step(const ExpertPlan& plan, std::int64_t num_tokens);

using Sm90Range = StepRange<Sm90Step>;
std::vector<Sm90Range> list_sm90_steps(const ExpertPlan& plan);

/// What is worth measuring for each bucket (names: cuda_sm90_tactics.h): every tile of the kernel
/// that the plan chooses, and of the other one near their crossover.
std::vector<TacticList> list_sm90_tactics(const ExpertPlan& plan);

/// The experts as the decode kernel takes them in the plan's mode, for a step of that load.
sm90::MoeDecodeShape sm90_decode_shape(const ExpertPlan& plan, const ExpectedLoad& load);

/// The experts' matrices as they are prepared.
sm90::WeightLayout sm90_gate_up(const ExpertPlan& plan);
sm90::WeightLayout sm90_down(const ExpertPlan& plan);

/// Where the plan's workspace holds what.
struct Sm90Workspace {
  std::size_t h = 0;            // bf16: rows of decode, or token tiles
  std::size_t x_tiles = 0;      // of prefill
  std::size_t x_grid = 0;       // bf16 [tokens, H], the w4a4 modes: x on the NVFP4 grid
  std::size_t x_row_scale = 0;  // fp32 [tokens], w4a4_dynamic
  std::size_t sums = 0;         // fp32 [routes, sums of gate_up], w4a4_dynamic
  std::size_t row_alpha = 0;    // fp32 [routes], w4a4_dynamic
};
Sm90Workspace sm90_workspace(const ExpertPlan& plan);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM90_PLAN_H_
