// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/not_built.h"

namespace halfbyte {

std::shared_ptr<ExpertBackend> make_cpu_backend() {
  return make_not_built_backend("cpu", "under construction");
}

}  // namespace halfbyte
