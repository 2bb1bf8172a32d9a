// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

#include <fmt/format.h>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4_tile.h"

namespace halfbyte::sm100 {

bool kernels_are_built() {
  return true;
}

std::size_t wanted_scratch_bytes(const GroupedGemmConfig& config) {
  return config.tile_tokens == kNarrowTile ? tile_scratch_bytes<kNarrowTile>(config)
                                           : tile_scratch_bytes<kWideTile>(config);
}

Status launch_failed(const GroupedGemmConfig& config, const char* cutlass, const char* cuda) {
  return {StatusCode::kDeviceError,
          fmt::format("{}: CUTLASS says {}, CUDA {}", config.to_string(), cutlass, cuda)};
}

Status launch(const GroupedGemmShape& shape,
              const GroupedGemmConfig& config,
              const GroupedGemmArgs& args,
              CUstream_st* stream) {
  const std::size_t wanted = wanted_scratch_bytes(config);
  if (wanted > config.scratch_bytes) {
    return {StatusCode::kInternal,
            fmt::format("{}: CUTLASS wants {} B", config.to_string(), wanted)};
  }
  return config.tile_tokens == kNarrowTile ? launch_tile<kNarrowTile>(shape, config, args, stream)
                                           : launch_tile<kWideTile>(shape, config, args, stream);
}

}  // namespace halfbyte::sm100
