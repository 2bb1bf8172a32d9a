// SPDX-License-Identifier: Apache-2.0
//
// sums[route] = alpha[e] * weights[e] * token[route] for every route of every expert e, NVFP4 x
// NVFP4 with fp32 sums: CUTLASS's block-scaled grouped GEMM. The weights are its A, so that an
// expert with few tokens takes a narrow tile. Compiled for sm_100a, never run on one. Host only: no
// CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_H_
#define HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/properties.h"
#include "formats/layout.h"
#include "halfbyte/status.h"
#include "kernels/cuda/common/nvfp4_rows.h"

struct CUstream_st;

namespace halfbyte::sm100 {

inline constexpr int kMaxExperts = 512;  // of a rank: one thread of fill_groups each
inline constexpr int kTileRows = 128;    // weight rows of a tile
inline constexpr int kTileCols = 256;

/// Widths of a tile, in tokens; one kernel each.
inline constexpr int kNarrowTile = 64;
inline constexpr int kWideTile = 256;

struct GroupedGemmShape {
  WeightLayout weights;         // blocked scales; padded_cols a multiple of 32
  std::int64_t max_routes = 0;  // of a step
  double rows_per_expert = 0;   // expected; decides speed alone
};

struct GroupedGemmConfig {
  int tile_tokens = 0;
  int num_ctas = 0;               // persistent: one a multiprocessor
  std::size_t scratch_bytes = 0;  // tensor maps, rewritten on the device for each expert
  bool operator==(const GroupedGemmConfig&) const = default;
  std::string to_string() const;
};

/// Device memory. A set of arrays that CUTLASS reads, one entry an expert.
struct GroupedGemmArgs {
  const std::uint8_t* weight_codes = nullptr;  // [weights.code_bytes()]
  const std::uint8_t* weight_scale = nullptr;  // [weights.scale_bytes()]
  const std::uint8_t* token_codes = nullptr;   // cuda::operand_of(weights)
  const std::uint8_t* token_scale = nullptr;
  const float* alpha = nullptr;  // [num_experts]; null: 1
  float* sums = nullptr;         // [routes, weights.code_rows()]
  std::byte* groups = nullptr;   // [group_bytes(num_experts)], 128-byte aligned
  std::byte* scratch = nullptr;  // [config.scratch_bytes], 128-byte aligned
};

/// The arrays, in this order in GroupedGemmArgs::groups.
enum class GroupArray : std::int32_t {
  kProblem = 0,      // rows, tokens, columns
  kWeightCodes = 1,  // pointers, from here
  kWeightScale = 2,
  kTokenCodes = 3,
  kTokenScale = 4,
  kSums = 5,
  kAlpha = 6,
  kWeightStride = 7,  // strides, from here
  kTokenStride = 8,
  kSumStride = 9,
  kWeightScaleLayout = 10,  // CUTLASS's layouts of scales, from here
  kTokenScaleLayout = 11,
};
inline constexpr int kNumGroupArrays = 12;

/// Bytes of an entry, at most: grouped_gemm_nvfp4_nvfp4.cuh holds CUTLASS's types to it.
HALFBYTE_HOST_DEVICE constexpr std::size_t group_entry_bytes(GroupArray array) {
  if (array == GroupArray::kProblem) return 12;
  return array < GroupArray::kWeightScaleLayout ? 8 : 32;
}
/// Where an array starts: a multiple of 16.
HALFBYTE_HOST_DEVICE constexpr std::size_t group_array_offset(GroupArray array, int num_experts) {
  std::size_t offset = 0;
  for (int i = 0; i < static_cast<int>(array); ++i) {
    const std::size_t bytes =
        group_entry_bytes(static_cast<GroupArray>(i)) * static_cast<std::size_t>(num_experts);
    offset += (bytes + 15) / 16 * 16;
  }
  return offset;
}
constexpr std::size_t group_bytes(int num_experts) {
  return group_array_offset(static_cast<GroupArray>(kNumGroupArrays), num_experts);
}

/// What one expert multiplies: sizes, and bytes from the start of each array of GroupedGemmArgs.
struct GroupOperands {
  int rows = 0, tokens = 0, cols = 0;
  std::int64_t weight_codes = 0, weight_scale = 0;
  std::int64_t token_codes = 0, token_scale = 0;
  std::int64_t sums = 0;
};
HALFBYTE_HOST_DEVICE constexpr GroupOperands group_operands(const WeightLayout& weights,
                                                            int expert,
                                                            std::int64_t first_route,
                                                            std::int32_t num_routes,
                                                            std::int32_t first_block) {
  const cuda::Nvfp4Operand tokens = cuda::operand_of(weights);
  return {static_cast<int>(weights.code_rows()),     num_routes,
          static_cast<int>(weights.padded_cols),     expert * weights.code_bytes_per_expert(),
          expert * weights.scale_bytes_per_expert(), first_route * tokens.row_bytes(),
          first_block * tokens.block_bytes(),        first_route * weights.code_rows() * 4};
}

/// Ok, or what the kernels want and what came: the device, experts, alignment, sizes. Pure.
Status can_run(const GroupedGemmShape& shape, const device::Properties& device);
/// Pure and deterministic. Requires can_run(...).ok().
GroupedGemmConfig select_config(const GroupedGemmShape& shape, const device::Properties& device);

/// False in a build without CUDA code for sm_100a: then every launch answers kUnsupported.
bool kernels_are_built();
/// Bytes of scratch that CUTLASS asks for with this config; 0 when the kernels are not built.
std::size_t wanted_scratch_bytes(const GroupedGemmConfig& config);

/// One GEMM whose arrays are to be filled.
struct GroupFill {
  WeightLayout weights;
  GroupedGemmArgs args;
};
/// Fills the arrays of the layer's two GEMMs, and first_block [num_experts] of `routes`, on the
/// device from what the device alone knows. Enqueues and returns.
Status launch_fill_groups(const GroupFill& gate_up,
                          const GroupFill& down,
                          const cuda::RouteTable& routes,
                          std::int32_t* first_block,
                          CUstream_st* stream);

/// Enqueues the GEMM whose arrays launch_fill_groups has filled, and returns. Allocates nothing,
/// waits for nothing; can be captured.
Status launch(const GroupedGemmShape& shape,
              const GroupedGemmConfig& config,
              const GroupedGemmArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::sm100

#endif  // HALFBYTE_KERNELS_CUDA_SM100_GROUPED_GEMM_NVFP4_NVFP4_H_
