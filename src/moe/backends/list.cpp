// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/not_built.h"
#include "moe/expert_backend.h"

namespace halfbyte {

const std::vector<std::shared_ptr<ExpertBackend>>& list_expert_backends() {
  static const std::vector<std::shared_ptr<ExpertBackend>> backends = {
      make_not_built_backend("cuda_sm100", "this version has no kernels for sm_100"),
      make_cuda_sm90_backend(),
      make_cpu_backend(),
      make_reference_backend(),
  };
  return backends;
}

}  // namespace halfbyte
