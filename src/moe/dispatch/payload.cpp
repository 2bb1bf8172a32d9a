// SPDX-License-Identifier: Apache-2.0
#include "moe/dispatch/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "formats/convert.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

bool is_nvfp4(const DispatchPlan& plan) {
  return plan.payload != Payload::kAsGiven;
}

const std::byte* x_row(const DispatchInput& input, std::int64_t token_idx) {
  return static_cast<const std::byte*>(input.x.data) +
         token_idx * input.x.row_stride * dtype_bytes(input.x.dtype);
}

bool weights_input(const DispatchPlan& plan, const DispatchInput& input, std::int64_t token_idx) {
  if (!plan.spec.apply_router_weight_on_input) return false;
  const std::int32_t expert_idx = input.routing.topk_idx[static_cast<std::size_t>(token_idx)];
  return expert_idx >= 0 && expert_idx < plan.spec.num_experts;
}

// The row that the experts see, widened; through x's dtype when it was weighted.
void widen_input_row(const DispatchPlan& plan,
                     const DispatchInput& input,
                     std::int64_t token_idx,
                     float* wide) {
  const std::int64_t cols = plan.spec.hidden_size;
  widen_to_f32(input.x.dtype, x_row(input, token_idx), cols, wide);
  if (!weights_input(plan, input, token_idx)) return;
  const float weight = input.routing.topk_weights[static_cast<std::size_t>(token_idx)];
  for (std::int64_t col = 0; col < cols; ++col)
    wide[col] = weight * wide[col];
}

// Row `token_idx` of X as it enters the experts, in x's dtype. A token without a route keeps its
// row: it is never read.
void write_input_row(const DispatchPlan& plan,
                     const DispatchInput& input,
                     std::int64_t token_idx,
                     float* wide,
                     std::byte* dst) {
  const std::int64_t cols = plan.spec.hidden_size;
  if (!weights_input(plan, input, token_idx)) {
    std::memcpy(dst, x_row(input, token_idx),
                static_cast<std::size_t>(cols * dtype_bytes(input.x.dtype)));
    return;
  }
  widen_input_row(plan, input, token_idx, wide);
  narrow_from_f32(input.x.dtype, wide, cols, dst);
}

void pack_nvfp4_row(const DispatchPlan& plan,
                    const DispatchInput& input,
                    const PayloadLayout& layout,
                    float* wide,
                    std::byte* dst) {
  const std::int64_t cols = plan.spec.hidden_size;
  float scale = input.s1;
  if (plan.payload == Payload::kNvfp4Dynamic) {
    scale = dynamic_row_scale(wide, cols);
    std::memcpy(dst + layout.row_scale, &scale, sizeof(scale));
  }
  quantize_activations(wide, 1, cols, scale, reinterpret_cast<std::uint8_t*>(dst),
                       reinterpret_cast<std::uint8_t*>(dst + layout.block_scale));
}

}  // namespace

PayloadLayout payload_layout(const DispatchPlan& plan) {
  const auto cols = static_cast<std::size_t>(plan.spec.hidden_size);
  const auto top_k = static_cast<std::size_t>(plan.spec.top_k);
  const auto element_bytes = static_cast<std::size_t>(dtype_bytes(plan.spec.x_dtype));
  PayloadLayout layout;
  layout.x_bytes = is_nvfp4(plan) ? cols / 2 : cols * element_bytes;
  layout.block_scale = layout.x_bytes;
  layout.block_scale_bytes = is_nvfp4(plan) ? cols / kNvfp4BlockSize : 0;
  layout.row_scale = layout.block_scale + layout.block_scale_bytes;
  layout.row_scale_bytes = plan.payload == Payload::kNvfp4Dynamic ? sizeof(float) : 0;
  layout.topk_idx = layout.row_scale + layout.row_scale_bytes;
  layout.topk_weights = layout.topk_idx + top_k * sizeof(std::int32_t);
  layout.row_bytes = layout.topk_weights + top_k * sizeof(float);
  return layout;
}

Status check_payload(const DispatchPlan& plan) {
  const bool fits =
      plan.payload == Payload::kAsGiven ||
      (plan.payload == Payload::kNvfp4 && plan.mode == ActivationMode::kW4a4) ||
      (plan.payload == Payload::kNvfp4Dynamic && plan.mode == ActivationMode::kW4a4Dynamic);
  if (fits) return {};
  return {StatusCode::kUnsupported,
          fmt::format("an NVFP4 payload needs activation mode w4a4 or w4a4_dynamic, and the scale "
                      "of that mode; the mode is {}: leave nvfp4 dispatch off",
                      activation_mode_name(plan.mode))};
}

void add_weighted_input(DispatchPlan& plan) {
  if (!plan.spec.apply_router_weight_on_input) return;
  plan.workspace.add("weighted_x",
                     static_cast<std::size_t>(plan.capacity_tokens) * payload_layout(plan).x_bytes);
}

ConstMatrixView weighted_input(const DispatchPlan& plan,
                               const DispatchInput& input,
                               Workspace workspace) {
  if (!plan.spec.apply_router_weight_on_input) return input.x;
  std::byte* weighted = workspace_buffer(plan, workspace, "weighted_x");
  float* wide = token_table(plan, workspace).row_sum;
  const auto row_bytes = static_cast<std::int64_t>(payload_layout(plan).x_bytes);
  for (std::int64_t token = 0; token < input.x.rows; ++token) {
    write_input_row(plan, input, token, wide, weighted + token * row_bytes);
  }
  return {weighted, input.x.dtype, input.x.rows, input.x.cols};
}

void pack_token(const DispatchPlan& plan,
                const DispatchInput& input,
                std::int64_t token_idx,
                float* wide,
                std::byte* dst) {
  const PayloadLayout layout = payload_layout(plan);
  if (is_nvfp4(plan)) {
    widen_input_row(plan, input, token_idx, wide);
    pack_nvfp4_row(plan, input, layout, wide, dst);
  } else {
    write_input_row(plan, input, token_idx, wide, dst);
  }
  const std::int64_t top_k = plan.spec.top_k;
  const std::size_t ids_bytes = static_cast<std::size_t>(top_k) * sizeof(std::int32_t);
  std::memcpy(dst + layout.topk_idx, input.routing.topk_idx.data() + token_idx * top_k, ids_bytes);
  if (plan.spec.apply_router_weight_on_input) {
    const float one = 1.0F;
    std::memcpy(dst + layout.topk_weights, &one, sizeof(one));  // top_k is 1
  } else {
    std::memcpy(dst + layout.topk_weights, input.routing.topk_weights.data() + token_idx * top_k,
                static_cast<std::size_t>(top_k) * sizeof(float));
  }
}

void pack_padding(const DispatchPlan& plan, std::byte* dst) {
  const PayloadLayout layout = payload_layout(plan);
  std::fill_n(dst + layout.topk_idx, layout.topk_weights - layout.topk_idx, std::byte{0xFF});
}

void add_token_rows(DispatchPlan& plan, bool copy_x) {
  const PayloadLayout layout = payload_layout(plan);
  const auto rows = static_cast<std::size_t>(plan.capacity_tokens);
  if (!is_nvfp4(plan)) {
    if (copy_x) plan.workspace.add("x_rows", rows * layout.x_bytes);
    return;
  }
  plan.workspace.add("x_codes", rows * layout.x_bytes);
  plan.workspace.add("x_block_scale", rows * layout.block_scale_bytes);
  if (layout.row_scale_bytes > 0) plan.workspace.add("x_row_scale", rows * sizeof(float));
}

TokenRows token_rows(const DispatchPlan& plan, Workspace workspace, bool copy_x) {
  TokenRows rows;
  if (!is_nvfp4(plan)) {
    if (copy_x) rows.x = workspace_buffer(plan, workspace, "x_rows");
    return rows;
  }
  rows.codes = workspace_buffer_as<std::uint8_t>(plan, workspace, "x_codes");
  rows.block_scale = workspace_buffer_as<std::uint8_t>(plan, workspace, "x_block_scale");
  if (plan.payload == Payload::kNvfp4Dynamic) {
    rows.row_scale = workspace_buffer_as<float>(plan, workspace, "x_row_scale");
  }
  return rows;
}

void unpack_token(const DispatchPlan& plan,
                  const std::byte* src,
                  std::int64_t row_idx,
                  const TokenTable& table,
                  const TokenRows& rows) {
  const PayloadLayout layout = payload_layout(plan);
  const auto row = static_cast<std::size_t>(row_idx);
  if (rows.x != nullptr) std::memcpy(rows.x + row * layout.x_bytes, src, layout.x_bytes);
  if (rows.codes != nullptr) {
    std::memcpy(rows.codes + row * layout.x_bytes, src, layout.x_bytes);
    std::memcpy(rows.block_scale + row * layout.block_scale_bytes, src + layout.block_scale,
                layout.block_scale_bytes);
  }
  if (rows.row_scale != nullptr) {
    std::memcpy(rows.row_scale + row, src + layout.row_scale, layout.row_scale_bytes);
  }
  const std::size_t ids_bytes = layout.topk_weights - layout.topk_idx;
  const std::int64_t first = row_idx * plan.spec.top_k;
  std::memcpy(table.topk_idx + first, src + layout.topk_idx, ids_bytes);
  std::memcpy(table.topk_weights + first, src + layout.topk_weights, ids_bytes);
}

void set_token_rows(const DispatchPlan& plan, const TokenRows& rows, DispatchedTokens& tokens) {
  tokens.x = ConstMatrixView(rows.x, plan.spec.x_dtype, tokens.num_rows, plan.spec.hidden_size);
  tokens.x_codes = rows.codes;
  tokens.x_block_scale = rows.block_scale;
  tokens.x_row_scale = rows.row_scale;
}

}  // namespace halfbyte
