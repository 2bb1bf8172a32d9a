// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_BACKENDS_CUDA_SM100_H_
#define HALFBYTE_MOE_BACKENDS_CUDA_SM100_H_

#include <memory>

#include "moe/expert_backend.h"

namespace halfbyte {

/// NVFP4 experts on a Blackwell GPU, activations in NVFP4 too (w4a4, w4a4_dynamic).
std::shared_ptr<ExpertBackend> make_cuda_sm100_backend();

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_BACKENDS_CUDA_SM100_H_
