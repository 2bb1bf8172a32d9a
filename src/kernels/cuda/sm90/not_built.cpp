// SPDX-License-Identifier: Apache-2.0
//
// The launches of this folder in a build without CUDA. Their plans are the real ones.
#include "kernels/cuda/sm90/activate_tiles.h"
#include "kernels/cuda/sm90/e4m3_rows.h"
#include "kernels/cuda/sm90/grid_tokens.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"
#include "kernels/cuda/sm90/prepare_weights.h"
#include "kernels/cuda/sm90/token_tiles.h"

namespace halfbyte::sm90 {
namespace {

Status not_built() {
  return {StatusCode::kUnsupported, "kernels for sm_90 are not built (CUDA is off)"};
}

}  // namespace

Status launch(const GroupedGemmShape& /*shape*/,
              const GroupedGemmConfig& /*config*/,
              const GroupedGemmArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const GroupedGemmFp8Shape& /*shape*/,
              const GroupedGemmFp8Config& /*config*/,
              const GroupedGemmFp8Args& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const MoeDecodeShape& /*shape*/,
              const MoeDecodeConfig& /*config*/,
              const MoeDecodeArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status reset_counters(const MoeDecodeShape& /*shape*/,
                      std::int32_t* /*counters*/,
                      CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const WeightLayout& /*layout*/,
              std::int64_t /*expert_idx*/,
              const PrepareWeightsArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch(const WeightLayout& /*layout*/,
              std::int64_t /*expert_idx*/,
              const PrepareFp8WeightsArgs& /*args*/,
              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_quantize_tokens(int /*num_experts*/,
                              std::int64_t /*max_routes*/,
                              std::int64_t /*cols*/,
                              int /*tile_tokens*/,
                              const QuantizeTokensArgs& /*args*/,
                              CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_e4m3_rows(std::int64_t /*num_rows*/,
                        std::int64_t /*cols*/,
                        const E4m3RowsArgs& /*args*/,
                        CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_gather_tokens(int /*num_experts*/,
                            std::int64_t /*max_routes*/,
                            std::int64_t /*hidden_size*/,
                            int /*tile_tokens*/,
                            const GatherTokensArgs& /*args*/,
                            CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_grid_tokens(std::int64_t /*num_rows*/,
                          std::int64_t /*cols*/,
                          const GridTokensArgs& /*args*/,
                          CUstream_st* /*stream*/) {
  return not_built();
}
Status launch_activate_tiles(const GroupedGemmShape& /*gate_up*/,
                             std::int64_t /*max_routes*/,
                             int /*tile_tokens*/,
                             const ActivateTilesArgs& /*args*/,
                             CUstream_st* /*stream*/) {
  return not_built();
}

}  // namespace halfbyte::sm90
