// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_fp8_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/sm90/token_tiles.h"
#include "moe/backends/cuda_sm90_plan.h"

namespace halfbyte {
namespace {

constexpr std::size_t kAlignment = 128;

sm90::GroupedGemmFp8Shape gate_up_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_gate_up(plan), sm90::GemmOutput::kActivated, DType::kF32, load.rows_per_expert()};
}

sm90::GroupedGemmFp8Shape down_shape(const ExpertPlan& plan, const ExpectedLoad& load) {
  return {sm90_down(plan), sm90::GemmOutput::kRows, plan.row_dtype, load.rows_per_expert()};
}

bool takes_decode(const ExpertPlan& plan, std::int64_t num_tokens) {
  return expected_load(plan, num_tokens).rows_per_expert() <= sm90::kMaxFp8DecodeRowsPerExpert;
}

// Bytes of an operand of `cols` columns: `rows` of decode, or the tiles of any step's routes for
// the width that needs most.
struct OperandBytes {
  std::size_t values = 0, scales = 0;
};

OperandBytes row_bytes(std::int64_t rows, std::int64_t cols) {
  return {static_cast<std::size_t>(rows * cols * 2),
          static_cast<std::size_t>(rows * sm90::block_scale_stride(cols)) * sizeof(float)};
}

OperandBytes tile_bytes(const ExpertPlan& plan, std::int64_t cols) {
  const std::size_t bytes = sm90::most_tile_bytes(sm90::list_fp8_tile_tokens(), cols, 1,
                                                  plan.max_routes, plan.shard.num_local_experts);
  return {bytes, bytes / sm90::kFp8BlockCols * sizeof(float)};
}

void add_operand(ExpertPlan& plan,
                 const std::string& name,
                 const OperandBytes& decode,
                 const OperandBytes& prefill) {
  plan.workspace.add(name + "_e4m3", std::max(decode.values, prefill.values), kAlignment);
  plan.workspace.add(name + "_scales", std::max(decode.scales, prefill.scales), kAlignment);
}

// Of decode and of prefill never both live.
void lay_out(ExpertPlan& plan) {
  const std::int64_t capacity = plan.capacity_tokens;
  const std::int64_t decode_tokens =
      most_tokens(capacity, [&plan](std::int64_t n) { return takes_decode(plan, n); });
  const std::int64_t decode_routes = decode_tokens * plan.spec.top_k;
  const std::int64_t h_cols = sm90_decode_shape(plan, {}).h_cols();
  OperandBytes x_tiles;
  OperandBytes h_tiles;
  std::int64_t h_values = decode_routes * h_cols;
  if (decode_tokens < capacity) {
    x_tiles = tile_bytes(plan, sm90_gate_up(plan).padded_cols());
    h_tiles = tile_bytes(plan, sm90_down(plan).padded_cols());
    h_values = std::max(h_values, plan.max_routes * plan.shard.intermediate_size);
  }
  plan.workspace = {};
  add_step_without_routes(plan);
  add_operand(plan, "x", row_bytes(decode_tokens, plan.spec.hidden_size), x_tiles);
  plan.workspace.add("h_f32", static_cast<std::size_t>(h_values) * sizeof(float), kAlignment);
  add_operand(plan, "h", row_bytes(decode_routes, h_cols), h_tiles);
}

}  // namespace

Status plan_sm90_fp8(ExpertPlan& plan) {
  const device::Properties properties = properties_of(plan.limits);
  HALFBYTE_RETURN_IF_ERROR(can_run(sm90_decode_shape(plan, {}), properties));
  HALFBYTE_RETURN_IF_ERROR(can_run(gate_up_shape(plan, {}), properties));
  HALFBYTE_RETURN_IF_ERROR(can_run(down_shape(plan, {}), properties));
  if (!plan.tactics.empty()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("cuda_sm90: tactic \"{}\": mode w4a8 has none to choose from",
                        plan.tactics.begin()->second)};
  }
  plan.x_format = "e4m3";
  plan.h_format = "e4m3";
  plan.activation_math = "hardware exp2, within 2^-20";
  plan.prepared_layout = fmt::format("{} v{}", sm90::kFp8LayoutName, sm90::kFp8LayoutVersion);
  lay_out(plan);
  plan.kernels = describe_steps(list_sm90_fp8_steps(plan));
  return {};
}

Sm90Fp8Step choose_sm90_fp8_step(const ExpertPlan& plan, std::int64_t num_tokens) {
  const device::Properties properties = properties_of(plan.limits);
  const ExpectedLoad load = expected_load(plan, num_tokens);
  Sm90Fp8Step step;
  step.decode = takes_decode(plan, num_tokens);
  if (step.decode) {
    step.decode_shape = sm90_decode_shape(plan, load);
    step.decode_config = select_config(step.decode_shape, properties);
    return step;
  }
  step.gate_up = gate_up_shape(plan, load);
  step.down = down_shape(plan, load);
  step.gate_up_config = select_config(step.gate_up, properties);
  step.down_config = select_config(step.down, properties);
  return step;
}

std::vector<StepRange<Sm90Fp8Step>> list_sm90_fp8_steps(const ExpertPlan& plan) {
  return list_steps<Sm90Fp8Step>(plan.capacity_tokens, [&plan](std::int64_t num_tokens) {
    return choose_sm90_fp8_step(plan, num_tokens);
  });
}

std::string Sm90Fp8Step::to_string() const {
  if (decode) return decode_config.to_string() + ", after e4m3_rows";
  return gate_up_config.to_string() + ", twice, quantize_tokens before each";
}

bool Sm90Fp8Step::launches_the_same(const Sm90Fp8Step& other) const {
  return decode == other.decode && decode_config == other.decode_config &&
         gate_up_config == other.gate_up_config && down_config == other.down_config;
}

Sm90Fp8Workspace sm90_fp8_workspace(const ExpertPlan& plan) {
  std::size_t next = 1;  // after the step without routes
  Sm90Fp8Workspace at;
  for (std::size_t* offset : {&at.x.values, &at.x.scales, &at.h_f32, &at.h.values, &at.h.scales})
    *offset = plan.workspace.entries()[next++].offset;
  return at;
}

}  // namespace halfbyte
