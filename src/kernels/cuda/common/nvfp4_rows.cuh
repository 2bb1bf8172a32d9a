// SPDX-License-Identifier: Apache-2.0
//
// A block takes one row after the other; a thread takes groups of 16 columns, which share a scale.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_CUH_

#include "kernels/cuda/common/load_values.cuh"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "kernels/cuda/common/nvfp4_rows.h"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/common/row_range.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace halfbyte::cuda::nvfp4_rows {

inline constexpr int kNumThreads = 128;

/// Calls visit(group, values) for every group of 16 columns that is this thread's.
template <typename Load, typename Visit>
__device__ __forceinline__ void for_each_group(std::int64_t num_groups, Load load, Visit visit) {
  for (std::int64_t group = threadIdx.x; group < num_groups; group += kNumThreads) {
    float values[kNvfp4Block];
    load(group, values);
    visit(group, values);
  }
}

/// The scale of a row whose groups `load` reads: the one given, else the row's own.
template <typename Load>
__device__ __forceinline__ float find_scale(const float* given, std::int64_t groups, Load load) {
  if (given != nullptr) return *given;
  RowRange range;
  for_each_group(groups, load, [&range](std::int64_t, const float(&values)[kNvfp4Block]) {
    for (const float value : values)
      range.add(value);
  });
  return reduce_range<kNumThreads>(range).scale();
}

__device__ __forceinline__ void store_codes(std::uint8_t* dst, const QuantizedBlock& block) {
  *reinterpret_cast<uint2*>(dst) = make_uint2(block.codes[0], block.codes[1]);
}

struct QuantizeParams {
  QuantizeRowsArgs args;
  std::int64_t num_rows;
  std::int64_t cols;
};

__global__ void __launch_bounds__(kNumThreads)
    quantize_kernel(const __grid_constant__ QuantizeParams p) {
  ptx::wait_for_previous_kernel();
  const std::int64_t groups = p.cols / kNvfp4Block;
  for (std::int64_t row = blockIdx.x; row < p.num_rows; row += gridDim.x) {
    const std::uint16_t* const x = static_cast<const std::uint16_t*>(p.args.x) + row * p.cols;
    const auto load = [x](std::int64_t group, float(&values)[kNvfp4Block]) {
      load_bf16(x + group * kNvfp4Block, values);
    };
    const float s = find_scale(p.args.scale, groups, load);
    const QuantizeScale scale = make_quantize_scale(s);
    for_each_group(groups, load, [&](std::int64_t group, const float(&values)[kNvfp4Block]) {
      const QuantizedBlock block = quantize_block(values, scale);
      store_codes(p.args.codes + row * (p.cols / 2) + group * 8, block);
      p.args.block_scale[row * groups + group] = static_cast<std::uint8_t>(block.scale);
    });
    if (p.args.scale == nullptr && threadIdx.x == 0) p.args.row_scale[row] = s;
  }
}

/// Calls visit(route, place) for every route, block by block.
template <typename Visit>
__device__ __forceinline__ void for_each_route(const RouteTable& routes, Visit visit) {
  const std::int64_t end = routes.expert_offset[routes.num_experts];
  for (std::int64_t route = blockIdx.x; route < end; route += gridDim.x) {
    const RoutePlace place =
        place_route(routes.expert_offset, routes.expert_count, routes.num_experts, route);
    if (place.expert >= 0) visit(route, place);
  }
}

__device__ __forceinline__ std::int64_t token_of(const RouteTable& routes, std::int64_t route) {
  return routes.route_row == nullptr ? route : routes.route_row[route];
}

struct GatherParams {
  GatherRowsArgs args;
  Nvfp4Operand operand;
};

/// Scale `group` of a route: zero past the last column.
__device__ __forceinline__ void gather_scales(const GatherParams& p,
                                              const RoutePlace& place,
                                              std::int64_t token) {
  const std::int64_t groups = p.operand.cols / kNvfp4Block;
  const std::uint8_t* const src = p.args.block_scale + token * groups;
  const std::int64_t first_block = p.args.routes.first_block[place.expert];
  for (std::int64_t group = threadIdx.x; group < p.operand.scale_cols; group += kNumThreads) {
    p.args.route_scale[p.operand.scale_offset(first_block, place.row, group)] =
        group < groups ? src[group] : std::uint8_t{0};
  }
}

__global__ void __launch_bounds__(kNumThreads)
    gather_kernel(const __grid_constant__ GatherParams p) {
  ptx::wait_for_previous_kernel();
  for_each_route(p.args.routes, [&p](std::int64_t route, const RoutePlace& place) {
    const std::int64_t token = token_of(p.args.routes, route);
    const std::int64_t words = p.operand.cols / kNvfp4Block;
    const auto* src = reinterpret_cast<const uint2*>(p.args.codes) + token * words;
    auto* dst = reinterpret_cast<uint2*>(p.args.route_codes + route * p.operand.row_bytes());
    for (std::int64_t i = threadIdx.x; i < p.operand.row_bytes() / 8; i += kNumThreads)
      dst[i] = i < words ? src[i] : uint2{};
    gather_scales(p, place, token);
  });
}

struct ActivateParams {
  ActivateRowsArgs args;
  Nvfp4Operand operand;
};

/// The scalars of a route's sums.
struct RouteAlphas {
  float gate, up;
};
__device__ __forceinline__ RouteAlphas route_alphas(const ActivateRowsArgs& args,
                                                    int expert,
                                                    std::int64_t route) {
  const float gate = args.gate_scale == nullptr ? 0.0F : args.gate_scale[expert];
  const float up = args.up_scale[expert];
  if (args.row_scale == nullptr) return {gate, up};
  const float s = args.row_scale[token_of(args.routes, route)];
  return {row_alpha(gate, s), row_alpha(up, s)};
}

/// 16 values of h.
__device__ __forceinline__ void load_h_group(const ActivateRowsArgs& args,
                                             const float* sums,
                                             const RouteAlphas& alphas,
                                             std::int64_t group,
                                             float (&h)[kNvfp4Block]) {
  const bool gated = args.gate_scale != nullptr;
  const std::int64_t up_col = up_sum_column(group * kNvfp4Block, gated);
  float up[kNvfp4Block];
  float gate[kNvfp4Block] = {};
  load_f32(sums + up_col, up);
  if (gated) load_f32(sums + up_col + 64, gate);
  for (int i = 0; i < kNvfp4Block; ++i)
    h[i] = portable_activate(args.activation, gate[i] * alphas.gate, up[i] * alphas.up);
}

/// Groups past the last column: zeros.
__device__ __forceinline__ void store_h_padding(const ActivateParams& p,
                                                std::uint8_t* codes,
                                                std::int64_t first_block,
                                                std::int64_t row) {
  const std::int64_t groups = p.operand.cols / kNvfp4Block;
  for (std::int64_t group = groups + threadIdx.x; group < p.operand.scale_cols;
       group += kNumThreads) {
    p.args.block_scale[p.operand.scale_offset(first_block, row, group)] = 0;
    if (group * 8 < p.operand.row_bytes()) store_codes(codes + group * 8, QuantizedBlock{});
  }
}

__device__ __forceinline__ void activate_route(const ActivateParams& p,
                                               std::int64_t route,
                                               const RoutePlace& place) {
  const float* const sums = p.args.sums + route * p.args.sum_cols;
  const RouteAlphas alphas = route_alphas(p.args, place.expert, route);
  const auto load = [&](std::int64_t group, float(&values)[kNvfp4Block]) {
    load_h_group(p.args, sums, alphas, group, values);
  };
  const std::int64_t groups = p.operand.cols / kNvfp4Block;
  const float s = find_scale(p.args.h_scale, groups, load);
  const QuantizeScale scale = make_quantize_scale(s);
  std::uint8_t* const codes = p.args.codes + route * p.operand.row_bytes();
  const std::int64_t first_block = p.args.routes.first_block[place.expert];
  for_each_group(groups, load, [&](std::int64_t group, const float(&values)[kNvfp4Block]) {
    const QuantizedBlock block = quantize_block(values, scale);
    store_codes(codes + group * 8, block);
    p.args.block_scale[p.operand.scale_offset(first_block, place.row, group)] =
        static_cast<std::uint8_t>(block.scale);
  });
  store_h_padding(p, codes, first_block, place.row);
  if (p.args.h_scale == nullptr && threadIdx.x == 0) p.args.h_row_scale[route] = s;
}

__global__ void __launch_bounds__(kNumThreads)
    activate_kernel(const __grid_constant__ ActivateParams p) {
  ptx::wait_for_previous_kernel();
  for_each_route(p.args.routes, [&p](std::int64_t route, const RoutePlace& place) {
    activate_route(p, route, place);
  });
}

struct ScaleParams {
  ScaleRowsArgs args;
  std::int64_t cols;
};

__global__ void __launch_bounds__(kNumThreads) scale_kernel(const __grid_constant__ ScaleParams p) {
  ptx::wait_for_previous_kernel();
  for_each_route(p.args.routes, [&p](std::int64_t route, const RoutePlace& place) {
    const float alpha = row_alpha(p.args.global_scale[place.expert], p.args.row_scale[route]);
    auto* row = reinterpret_cast<float4*>(p.args.rows + route * p.cols);
    for (std::int64_t i = threadIdx.x; i < p.cols / 4; i += kNumThreads) {
      const float4 four = row[i];
      row[i] = make_float4(four.x * alpha, four.y * alpha, four.z * alpha, four.w * alpha);
    }
  });
}

}  // namespace halfbyte::cuda::nvfp4_rows

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_CUH_
