// SPDX-License-Identifier: Apache-2.0
//
// One GEMM of all experts in mode w4a8: E4M3 tokens with a scale per 128 columns, NVFP4 weights in
// formats/sm90_fp8_layout.h. Correct for every distribution of rows. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_H_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_H_

#include <cstdint>
#include <span>
#include <string>

#include "device/properties.h"
#include "formats/sm90_fp8_layout.h"
#include "halfbyte/dtype.h"
#include "halfbyte/moe.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

namespace halfbyte::sm90 {

/// Of kActivated the output is h in fp32, which the next product's quantiser reads.
struct GroupedGemmFp8Shape {
  WeightLayout weights;  // fp8_layout()
  GemmOutput output = GemmOutput::kRows;
  DType row_dtype = DType::kBf16;  // of kRows: kBf16 or kF32
  double rows_per_expert = 0;      // expected in the planned step, of experts with any
};

struct GroupedGemmFp8Config {
  int tile_tokens = 0;  // at most, beside 128 weight rows; the rows of an expert choose the width
  int num_stages = 0;   // of 128 columns
  int shared_bytes = 0;
  int num_ctas = 0;  // persistent grid
  bool operator==(const GroupedGemmFp8Config&) const = default;
  std::string to_string() const;
};

/// Device pointers, 16-byte aligned. Routes of expert e are rows expert_offset[e] and following.
/// Counts, offsets, weights and row factors are read while the kernel before still runs: it is one
/// that writes none of them and lets this one start only after its own wait
/// (ptx::wait_then_launch_next).
struct GroupedGemmFp8Args {
  const std::uint8_t* tokens = nullptr;         // TokenTiles of a byte a column, padded_cols()
  const float* token_scale = nullptr;           // of the tiles, TokenTiles::scale_index
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  const std::uint8_t* weights = nullptr;        // weights.bytes()
  const float* row_factor = nullptr;            // [num_experts, weights.rows()], in stored order
  const float* alpha[2] = {};                   // [num_experts] of each half
  ActivationSpec activation;                    // kActivated
  void* output = nullptr;                       // [routes, half_rows]: fp32 h, or rows
};

/// Tile sizes that are compiled; each can be forced.
std::span<const int> list_fp8_tile_tokens();
Status can_run(const GroupedGemmFp8Shape& shape, const device::Properties& limits);
GroupedGemmFp8Config make_config(const GroupedGemmFp8Shape& shape,
                                 int tile_tokens,
                                 const device::Properties& limits);
/// Pure and deterministic. Requires can_run(...).ok().
GroupedGemmFp8Config select_config(const GroupedGemmFp8Shape& shape,
                                   const device::Properties& limits);
/// Enqueues and returns. Reads the counts on the device; rows past them are not touched.
Status launch(const GroupedGemmFp8Shape& shape,
              const GroupedGemmFp8Config& config,
              const GroupedGemmFp8Args& args,
              CUstream_st* stream);

/// Shared memory: a ring of stages of 128 columns, the epilogue's staging, and the tables of the
/// experts. With narrow tiles two or three CTAs share a multiprocessor.
inline constexpr int kFp8NumConsumerWarps = 8;
HALFBYTE_HOST_DEVICE constexpr int fp8_ctas_per_multiprocessor(int tile_tokens) {
  if (tile_tokens <= 16) return 3;
  return tile_tokens <= 64 ? 2 : 1;
}
/// CTAs that work on neighbouring row tiles and the same tokens, of which each copies its share for
/// all: from L2 the tokens would come at half the speed that wide products take them.
HALFBYTE_HOST_DEVICE constexpr int fp8_cluster_ctas(int tile_tokens) {
  return tile_tokens > 64 ? 2 : 1;
}
/// Beside the consumers a warpgroup that hands its registers on, or, where none are to spare, a
/// warp.
HALFBYTE_HOST_DEVICE constexpr int fp8_num_threads(int tile_tokens) {
  return 32 * kFp8NumConsumerWarps + (fp8_ctas_per_multiprocessor(tile_tokens) <= 2 ? 128 : 32);
}
HALFBYTE_HOST_DEVICE constexpr int fp8_stage_bytes(int tile_tokens) {
  return 2 * kSlabBytes + tile_tokens * (kFp8BlockCols + 4) + 16;
}
/// Beside the stages.
HALFBYTE_HOST_DEVICE constexpr int fp8_fixed_bytes(int num_experts) {
  return 1024 + kFp8NumConsumerWarps * kGemmWarpStaging + 2 * 8 + gemm_table_bytes(num_experts);
}
HALFBYTE_HOST_DEVICE constexpr int fp8_num_stages(int tile_tokens) {
  constexpr int kMultiprocessorBytes = 228 * 1024;
  const int ctas = fp8_ctas_per_multiprocessor(tile_tokens);
  const int budget = kMultiprocessorBytes / ctas - 1024 - fp8_fixed_bytes(kGemmMaxExperts);
  const int fit = budget / fp8_stage_bytes(tile_tokens);
  return fit < 8 ? fit : 8;
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_H_
