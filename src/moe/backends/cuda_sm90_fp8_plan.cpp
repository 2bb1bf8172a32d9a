// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm90_fp8_plan.h"

#include <fmt/format.h>

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

// Token tiles of `cols` columns and the scales of their blocks, for the width that needs most.
void add_tiles(ExpertPlan& plan, const std::string& operand, std::int64_t cols) {
  const std::size_t bytes = sm90::most_tile_bytes(sm90::list_fp8_tile_tokens(), cols, 1,
                                                  plan.max_routes, plan.shard.num_local_experts);
  plan.workspace.add(operand + "_tiles", bytes, kAlignment);
  plan.workspace.add(operand + "_scales", bytes / sm90::kFp8BlockCols * sizeof(float), kAlignment);
}

void lay_out(ExpertPlan& plan) {
  plan.workspace = {};
  add_step_without_routes(plan);
  add_tiles(plan, "x", sm90_gate_up(plan).padded_cols());
  plan.workspace.add(
      "h", static_cast<std::size_t>(plan.max_routes * plan.shard.intermediate_size) * sizeof(float),
      kAlignment);
  add_tiles(plan, "h", sm90_down(plan).padded_cols());
}

}  // namespace

Status plan_sm90_fp8(ExpertPlan& plan) {
  const device::Properties properties = properties_of(plan.limits);
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
  return gate_up_config.to_string() + ", twice, quantize_tokens before each";
}

bool Sm90Fp8Step::launches_the_same(const Sm90Fp8Step& other) const {
  return gate_up_config == other.gate_up_config && down_config == other.down_config;
}

Sm90Fp8Workspace sm90_fp8_workspace(const ExpertPlan& plan) {
  std::size_t next = 1;  // after the step without routes
  Sm90Fp8Workspace at;
  for (std::size_t* offset : {&at.x.tiles, &at.x.scales, &at.h_rows, &at.h.tiles, &at.h.scales})
    *offset = plan.workspace.entries()[next++].offset;
  return at;
}

}  // namespace halfbyte
