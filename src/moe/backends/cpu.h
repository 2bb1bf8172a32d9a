// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_BACKENDS_CPU_H_
#define HALFBYTE_MOE_BACKENDS_CPU_H_

#include <memory>

#include "kernels/cpu/kernel_table.h"
#include "moe/expert_backend.h"

namespace halfbyte {

/// The cpu backend with the kernels of one instruction set; make_cpu_backend takes the best one.
std::shared_ptr<ExpertBackend> make_cpu_backend_with(const cpu::KernelTable& kernels);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CPU_H_
