// SPDX-License-Identifier: Apache-2.0
//
// The kernels of kernels/cuda/common/nvfp4_rows in plain loops over host memory: what they read,
// what they write, and what they leave alone.
#ifndef HALFBYTE_TESTS_SUPPORT_NVFP4_ROWS_ON_HOST_H_
#define HALFBYTE_TESTS_SUPPORT_NVFP4_ROWS_ON_HOST_H_

#include <cstring>
#include <span>
#include <vector>

#include "formats/bf16.h"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "kernels/cuda/common/nvfp4_rows.h"
#include "kernels/cuda/common/portable_activation.h"

namespace halfbyte::test {

/// A row of cols % 16 == 0 values; store(group, block) takes each block.
template <typename Store>
float quantize_row(std::span<const float> row, const float* given, Store store) {
  cuda::RowRange range;
  for (const float value : row)
    range.add(value);
  const float s = given != nullptr ? *given : range.scale();
  const cuda::QuantizeScale scale = cuda::make_quantize_scale(s);
  for (std::size_t group = 0; group < row.size() / 16; ++group) {
    float values[16];
    std::memcpy(values, row.data() + group * 16, sizeof values);
    store(static_cast<std::int64_t>(group), cuda::quantize_block(values, scale));
  }
  return s;
}

inline void quantize_rows_on_host(std::int64_t num_rows,
                                  std::int64_t cols,
                                  const cuda::QuantizeRowsArgs& args) {
  std::vector<float> values(static_cast<std::size_t>(cols));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto* x = static_cast<const std::uint16_t*>(args.x) + row * cols;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = bf16_to_f32(x[i]);
    const float s = quantize_row(
        values, args.scale, [&](std::int64_t group, const cuda::QuantizedBlock& block) {
          std::memcpy(args.codes + row * (cols / 2) + group * 8, block.codes, 8);
          args.block_scale[row * (cols / 16) + group] = static_cast<std::uint8_t>(block.scale);
        });
    if (args.scale == nullptr) args.row_scale[row] = s;
  }
}

template <typename Visit>
void for_each_route(const cuda::RouteTable& routes, Visit visit) {
  for (std::int64_t route = 0; route < routes.expert_offset[routes.num_experts]; ++route) {
    const cuda::RoutePlace place =
        cuda::place_route(routes.expert_offset, routes.expert_count, routes.num_experts, route);
    if (place.expert >= 0) visit(route, place);
  }
}

inline std::int64_t token_of(const cuda::RouteTable& routes, std::int64_t route) {
  return routes.route_row == nullptr ? route : routes.route_row[route];
}

inline void gather_rows_on_host(const cuda::Nvfp4Operand& operand,
                                const cuda::GatherRowsArgs& args) {
  for_each_route(args.routes, [&](std::int64_t route, const cuda::RoutePlace& place) {
    const std::int64_t token = token_of(args.routes, route);
    std::uint8_t* dst = args.route_codes + route * operand.row_bytes();
    std::memset(dst, 0, static_cast<std::size_t>(operand.row_bytes()));
    std::memcpy(dst, args.codes + token * (operand.cols / 2),
                static_cast<std::size_t>(operand.cols / 2));
    const std::int64_t groups = operand.cols / 16;
    for (std::int64_t group = 0; group < operand.scale_cols; ++group) {
      args.route_scale[operand.scale_offset(args.routes.first_block[place.expert], place.row,
                                            group)] =
          group < groups ? args.block_scale[token * groups + group] : std::uint8_t{0};
    }
  });
}

/// h of a route before it is quantised.
inline std::vector<float> h_on_host(const cuda::Nvfp4Operand& operand,
                                    const cuda::ActivateRowsArgs& args,
                                    std::int64_t route,
                                    int expert) {
  const bool gated = args.gate_scale != nullptr;
  float gate_alpha = gated ? args.gate_scale[expert] : 0.0F;
  float up_alpha = args.up_scale[expert];
  if (args.row_scale != nullptr) {
    const float s = args.row_scale[token_of(args.routes, route)];
    gate_alpha = cuda::row_alpha(gate_alpha, s);
    up_alpha = cuda::row_alpha(up_alpha, s);
  }
  std::vector<float> h;
  const float* sums = args.sums + route * args.sum_cols;
  for (std::int64_t col = 0; col < operand.cols; ++col) {
    const std::int64_t up = cuda::up_sum_column(col, gated);
    const float gate_sum = gated ? sums[up + 64] : 0.0F;
    h.push_back(
        cuda::portable_activate(args.activation, gate_sum * gate_alpha, sums[up] * up_alpha));
  }
  return h;
}

inline void activate_rows_on_host(const cuda::Nvfp4Operand& operand,
                                  const cuda::ActivateRowsArgs& args) {
  for_each_route(args.routes, [&](std::int64_t route, const cuda::RoutePlace& place) {
    std::uint8_t* codes = args.codes + route * operand.row_bytes();
    const std::int64_t first_block = args.routes.first_block[place.expert];
    std::memset(codes, 0, static_cast<std::size_t>(operand.row_bytes()));
    for (std::int64_t group = 0; group < operand.scale_cols; ++group)
      args.block_scale[operand.scale_offset(first_block, place.row, group)] = 0;
    const float s =
        quantize_row(h_on_host(operand, args, route, place.expert), args.h_scale,
                     [&](std::int64_t group, const cuda::QuantizedBlock& block) {
                       std::memcpy(codes + group * 8, block.codes, 8);
                       args.block_scale[operand.scale_offset(first_block, place.row, group)] =
                           static_cast<std::uint8_t>(block.scale);
                     });
    if (args.h_scale == nullptr) args.h_row_scale[route] = s;
  });
}

inline void scale_rows_on_host(std::int64_t cols, const cuda::ScaleRowsArgs& args) {
  for_each_route(args.routes, [&](std::int64_t route, const cuda::RoutePlace& place) {
    const float alpha = cuda::row_alpha(args.global_scale[place.expert], args.row_scale[route]);
    for (std::int64_t col = 0; col < cols; ++col)
      args.rows[route * cols + col] *= alpha;
  });
}

/// First block of 128 rows of each expert's scales, as fill_groups counts them.
inline std::vector<std::int32_t> first_blocks(std::span<const std::int32_t> expert_count) {
  std::vector<std::int32_t> first;
  std::int32_t next = 0;
  for (const std::int32_t count : expert_count) {
    first.push_back(next);
    next += (count + 127) / 128;
  }
  return first;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_NVFP4_ROWS_ON_HOST_H_
