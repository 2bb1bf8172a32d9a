// SPDX-License-Identifier: Apache-2.0
//
// A build without CUDA code for sm_100a: plans are made as ever, and no launch ever happens.
#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

namespace halfbyte::sm100 {
namespace {

Status not_built() {
  return {StatusCode::kUnsupported,
          "kernels for sm_100a are not built (configure with HALFBYTE_CUDA=ON and "
          "CMAKE_CUDA_ARCHITECTURES=100a-real)"};
}

}  // namespace

bool kernels_are_built() {
  return false;
}

std::size_t wanted_scratch_bytes(const GroupedGemmConfig& /*config*/) {
  return 0;
}

Status launch_fill_groups(const GroupFill& /*gate_up*/,
                          const GroupFill& /*down*/,
                          const cuda::RouteTable& /*routes*/,
                          std::int32_t* /*first_block*/,
                          CUstream_st* /*stream*/) {
  return not_built();
}

Status launch(const GroupedGemmShape& /*shape*/,
              const GroupedGemmConfig& /*config*/,
              const GroupedGemmArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}

}  // namespace halfbyte::sm100
