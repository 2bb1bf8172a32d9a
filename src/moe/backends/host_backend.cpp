// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/host_backend.h"

#include <fmt/format.h>

#include "formats/convert.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

Status check_matrix(std::string_view projection,
                    WeightFormat format,
                    std::int64_t rows,
                    std::int64_t cols,
                    const CanonicalMatrix& matrix) {
  if (matrix.format != format) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: want the layer's expert format {}, got {}", projection,
                        weight_format_name(format), weight_format_name(matrix.format))};
  }
  if (matrix.rows == rows && matrix.cols == cols) return {};
  return {StatusCode::kInvalidArgument, fmt::format("{}: want {} x {}, got {} x {}", projection,
                                                    rows, cols, matrix.rows, matrix.cols)};
}

Status check_projections(const ExpertPlan& plan, const CanonicalExpert& expert) {
  const std::int64_t hidden = plan.spec.hidden_size;
  const std::int64_t width = plan.shard.intermediate_size;
  const WeightFormat format = plan.spec.expert_format;
  if (plan.spec.activation.gated()) {
    HALFBYTE_RETURN_IF_ERROR(check_matrix("gate", format, width, hidden, expert.gate));
  } else if (expert.gate.rows != 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("gate: {} has none, got {} rows",
                        activation_function_name(plan.spec.activation.function), expert.gate.rows)};
  }
  HALFBYTE_RETURN_IF_ERROR(check_matrix("up", format, width, hidden, expert.up));
  return check_matrix("down", format, hidden, width, expert.down);
}

Status check_payload(const ExpertPlan& plan, const DispatchedTokens& tokens) {
  if (tokens.x.data != nullptr) {
    if (tokens.x.cols == plan.spec.hidden_size && tokens.x.dtype == plan.spec.x_dtype) return {};
    return {StatusCode::kInvalidArgument,
            fmt::format("x: want [rows, {}] of {}, got [rows, {}] of {}", plan.spec.hidden_size,
                        dtype_name(plan.spec.x_dtype), tokens.x.cols, dtype_name(tokens.x.dtype))};
  }
  if (!is_w4a4(plan.mode) || tokens.x_codes == nullptr || tokens.x_block_scale == nullptr) {
    return {StatusCode::kInvalidArgument, "x is null and no NVFP4 payload of this mode came"};
  }
  if (plan.mode == ActivationMode::kW4a4Dynamic && tokens.x_row_scale == nullptr)
    return {StatusCode::kInvalidArgument, "an NVFP4 payload of w4a4_dynamic needs row scales"};
  return {};
}

// The rows that the routes of one expert read and write.
Status check_routes(const DispatchedTokens& tokens,
                    const ExpertOutput& output,
                    std::int64_t expert_idx) {
  const std::int64_t begin = tokens.expert_offset[expert_idx];
  const std::int64_t count = tokens.expert_count[expert_idx];
  if (count < 0 || begin < 0 || begin + count > output.rows.rows) {
    return {StatusCode::kInvalidArgument,
            fmt::format("local expert {}: routes {} .. {}, the output has {} rows", expert_idx,
                        begin, begin + count - 1, output.rows.rows)};
  }
  for (std::int64_t route = begin; route < begin + count; ++route) {
    const std::int64_t row = row_of_route(tokens, route);
    if (row >= 0 && row < tokens.num_rows) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("route {} reads row {}, x has {} rows", route, row, tokens.num_rows)};
  }
  return {};
}

Status check_output(const ExpertPlan& plan, const ExpertOutput& output) {
  if (output.rows.dtype == plan.row_dtype && output.rows.cols == plan.spec.hidden_size) return {};
  return {
      StatusCode::kInvalidArgument,
      fmt::format("output: want [routes, {}] of {}, got [routes, {}] of {}", plan.spec.hidden_size,
                  dtype_name(plan.row_dtype), output.rows.cols, dtype_name(output.rows.dtype))};
}

Status too_many(std::string_view what, std::int64_t got, std::int64_t holds) {
  return {StatusCode::kCapacityExceeded,
          fmt::format("{} {}, the plan holds {}: plan with a larger capacity", got, what, holds)};
}

}  // namespace

Status check_host_spec(std::string_view backend, const MoeSpec& spec, ActivationMode mode) {
  HALFBYTE_RETURN_IF_ERROR(check_spec(spec));
  if (spec.expert_format == WeightFormat::kNvfp4 || mode == ActivationMode::kW4a16) return {};
  return {StatusCode::kUnsupported,
          fmt::format("{}: {} experts run with activations as given (w4a16), got {}", backend,
                      weight_format_name(spec.expert_format), activation_mode_name(mode))};
}

Status complete_request(ExpertPlan& plan) {
  if (plan.capacity_tokens < 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("capacity_tokens: want >= 0, got {}", plan.capacity_tokens)};
  }
  if (plan.shard.num_local_experts < 0 || plan.shard.intermediate_size <= 0 ||
      plan.shard.intermediate_size % 16 != 0) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("shard: want experts >= 0 of a width that is a multiple of 16, got {} of {}",
                    plan.shard.num_local_experts, plan.shard.intermediate_size)};
  }
  if (plan.max_routes <= 0 || plan.capacity_tokens == 0)
    plan.max_routes = plan.capacity_tokens * plan.spec.top_k;
  return {};
}

Status check_expert(const ExpertPlan& plan,
                    std::int64_t local_expert_idx,
                    const CanonicalExpert& expert) {
  if (local_expert_idx < 0 || local_expert_idx >= plan.shard.num_local_experts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("local expert {}, this rank holds {}", local_expert_idx,
                        plan.shard.num_local_experts)};
  }
  return check_projections(plan, expert)
      .with_context(fmt::format("expert {}", plan.shard.first_expert + local_expert_idx));
}

Status check_scales(const ExpertPlan& plan, const ExpertScales& scales) {
  const auto want = static_cast<std::size_t>(plan.shard.num_local_experts);
  const bool gated = plan.spec.activation.gated();
  for (const auto* values : {&scales.gate_global_scale, &scales.gate_alpha, &scales.up_global_scale,
                             &scales.up_alpha, &scales.down_global_scale, &scales.down_alpha}) {
    const bool is_gate = values == &scales.gate_global_scale || values == &scales.gate_alpha;
    if (values->size() == want || (is_gate && !gated)) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("scales: want {} of each, got {}", want, values->size())};
  }
  return {};
}

Status check_tokens(const ExpertPlan& plan,
                    const DispatchedTokens& tokens,
                    const ExpertOutput& output,
                    Workspace workspace) {
  std::int64_t num_routes = 0;
  for (std::int64_t e = 0; e < plan.shard.num_local_experts; ++e) {
    HALFBYTE_RETURN_IF_ERROR(check_routes(tokens, output, e));
    num_routes += tokens.expert_count[e];
  }
  if (num_routes == 0) return {};
  if (tokens.route_row != nullptr && tokens.num_rows > plan.capacity_tokens)
    return too_many("rows of x", tokens.num_rows, plan.capacity_tokens);
  if (num_routes > plan.max_routes) return too_many("routes", num_routes, plan.max_routes);
  HALFBYTE_RETURN_IF_ERROR(check_payload(plan, tokens));
  HALFBYTE_RETURN_IF_ERROR(check_output(plan, output));
  if (workspace.bytes >= plan.workspace.total_bytes()) return {};
  return {StatusCode::kInvalidArgument, fmt::format("workspace: want {} bytes, got {}",
                                                    plan.workspace.total_bytes(), workspace.bytes)};
}

void widen_x_row(const DispatchedTokens& tokens, std::int64_t row, float* dst) {
  const auto* base = static_cast<const std::byte*>(tokens.x.data);
  widen_to_f32(tokens.x.dtype, base + row * tokens.x.row_stride * dtype_bytes(tokens.x.dtype),
               tokens.x.cols, dst);
}

std::string activation_dtype_name(DType dtype) {
  if (dtype == DType::kF32) return "fp32";
  return dtype == DType::kBf16 ? "bf16" : "f16";
}

}  // namespace halfbyte
