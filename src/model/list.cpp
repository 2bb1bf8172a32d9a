// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/architecture.h"

namespace halfbyte {

const std::vector<const Architecture*>& list_architectures() {
  static const std::vector<const Architecture*> architectures = {
      &kQwen3Moe,
      &kDeepseekV3,
  };
  return architectures;
}

Result<const Architecture*> find_architecture(const ModelConfig& config) {
  std::vector<std::string_view> names;
  for (const Architecture* architecture : list_architectures()) {
    if (architecture->name == config.architecture) return architecture;
    names.push_back(architecture->name);
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("architecture {}: not supported; this build runs {}",
                            config.architecture.empty() ? "(none named)" : config.architecture,
                            fmt::join(names, ", ")));
}

}  // namespace halfbyte
