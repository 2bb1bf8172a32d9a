// SPDX-License-Identifier: Apache-2.0
#include "moe/expert_backend.h"

namespace halfbyte {

const std::vector<std::shared_ptr<ExpertBackend>>& list_expert_backends() {
  static const std::vector<std::shared_ptr<ExpertBackend>> backends = {
      make_cuda_sm100_backend(),
      make_cuda_sm90_backend(),
      make_cpu_backend(),
      make_reference_backend(),
  };
  return backends;
}

}  // namespace halfbyte
