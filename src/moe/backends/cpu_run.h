// SPDX-License-Identifier: Apache-2.0
//
// One step of the cpu backend: operand rows, GEMM1 and activation, requantisation, GEMM2.
#ifndef HALFBYTE_MOE_BACKENDS_CPU_RUN_H_
#define HALFBYTE_MOE_BACKENDS_CPU_RUN_H_

#include "kernels/cpu/kernel_table.h"
#include "moe/backends/cpu_weights.h"

namespace halfbyte {

/// Fills plan.workspace from its sizes and number of threads.
void plan_cpu_workspace(ExpertPlan& plan);

/// Computes the rows of every route; `tokens` were checked. Allocates nothing. The bits of a row
/// depend on that row alone, whatever the batch and the number of threads.
void run_cpu_experts(const ExpertPlan& plan,
                     const PreparedCpuExperts& prepared,
                     const cpu::KernelTable& kernels,
                     const DispatchedTokens& tokens,
                     const ExpertOutput& output,
                     Workspace workspace);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CPU_RUN_H_
