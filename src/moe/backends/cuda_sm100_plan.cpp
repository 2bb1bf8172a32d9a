// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_sm100_plan.h"

#include <fmt/format.h>

#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

constexpr std::size_t kAlignment = 128;        // of tensor maps, and of what they point to
constexpr std::int64_t kColumnAlignment = 32;  // rows of codes are 16-byte aligned

Result<WeightLayout> make_gate_up(const ExpertPlan& plan) {
  const bool gated = plan.spec.activation.gated();
  return make_layout(
      gated ? DataLayout::kGateUpInterleave64Blocked128x4 : DataLayout::kBlocked128x4,
      {plan.shard.num_local_experts, gated ? 2 : 1, plan.shard.intermediate_size,
       plan.spec.hidden_size},
      {1, kColumnAlignment});
}

// Its columns are padded as the halves of gate_up are.
Result<WeightLayout> make_down(const ExpertPlan& plan) {
  return make_layout(
      DataLayout::kBlocked128x4,
      {plan.shard.num_local_experts, 1, plan.spec.hidden_size, plan.shard.intermediate_size},
      {1, plan.spec.activation.gated() ? 64 : kColumnAlignment});
}

void add_operand(ExpertPlan& plan, const char* codes, const char* scale, cuda::Nvfp4Operand rows) {
  const std::int64_t blocks = cuda::max_scale_blocks(plan.max_routes, plan.shard.num_local_experts);
  plan.workspace.add(codes, static_cast<std::size_t>(plan.max_routes * rows.row_bytes()),
                     kAlignment);
  plan.workspace.add(scale, static_cast<std::size_t>(blocks * rows.block_bytes()), kAlignment);
}

void add_row_scale(ExpertPlan& plan, const char* name, std::int64_t rows) {
  const bool dynamic = plan.mode == ActivationMode::kW4a4Dynamic;
  plan.workspace.add(name, dynamic ? static_cast<std::size_t>(rows) * sizeof(float) : 0,
                     kAlignment);
}

// In the order of Sm100Workspace.
void lay_out(ExpertPlan& plan) {
  const auto experts = static_cast<int>(plan.shard.num_local_experts);
  const auto tokens = static_cast<std::size_t>(plan.capacity_tokens);
  const auto hidden = static_cast<std::size_t>(plan.spec.hidden_size);
  const WeightLayout gate_up = sm100_gate_up(plan);
  plan.workspace = {};
  add_step_without_routes(plan);
  plan.workspace.add("first_block", static_cast<std::size_t>(experts) * sizeof(std::int32_t),
                     kAlignment);
  plan.workspace.add("gate_up_groups", sm100::group_bytes(experts), kAlignment);
  plan.workspace.add("down_groups", sm100::group_bytes(experts), kAlignment);
  plan.workspace.add("scratch", choose_sm100_step(plan, 1).config.scratch_bytes, kAlignment);
  plan.workspace.add("x_codes", tokens * hidden / 2, kAlignment);
  plan.workspace.add("x_scale", tokens * hidden / 16, kAlignment);
  add_row_scale(plan, "x_row_scale", plan.capacity_tokens);
  add_operand(plan, "route_codes", "route_scale", cuda::operand_of(gate_up));
  plan.workspace.add(
      "sums", static_cast<std::size_t>(plan.max_routes * gate_up.code_rows()) * sizeof(float),
      kAlignment);
  add_operand(plan, "h_codes", "h_scale", cuda::operand_of(sm100_down(plan)));
  add_row_scale(plan, "h_row_scale", plan.max_routes);
}

std::string layout_text(const WeightLayout& layout) {
  const LayoutInfo info = layout_info(layout.layout);
  return fmt::format("{} v{}", info.name, info.version);
}

Status check_kernels(const ExpertPlan& plan) {
  HALFBYTE_ASSIGN_OR_RETURN(const WeightLayout gate_up, make_gate_up(plan));
  HALFBYTE_ASSIGN_OR_RETURN(const WeightLayout down, make_down(plan));
  const device::Properties device = properties_of(plan.limits);
  for (const WeightLayout& weights : {gate_up, down})
    HALFBYTE_RETURN_IF_ERROR(
        sm100::can_run({weights, plan.max_routes, 1}, device).with_context("cuda_sm100"));
  return {};
}

}  // namespace

Status check_sm100_spec(const MoeSpec& spec, ActivationMode mode) {
  HALFBYTE_RETURN_IF_ERROR(check_cuda_spec("cuda_sm100", spec));
  if (is_w4a4(mode)) return {};
  return {StatusCode::kUnsupported,
          fmt::format("cuda_sm100: mode {} has no kernels here: use w4a4_dynamic, which takes the "
                      "same checkpoints, or w4a4, which needs their input scales",
                      activation_mode_name(mode))};
}

Result<ExpertPlan> plan_sm100(ExpertPlan request) {
  HALFBYTE_RETURN_IF_ERROR(complete_request(request));
  HALFBYTE_RETURN_IF_ERROR(check_kernels(request));
  const WeightLayout gate_up = sm100_gate_up(request);
  const WeightLayout down = sm100_down(request);
  request.backend = "cuda_sm100";
  request.token_layout = TokenLayout::kTokenMajor;
  request.row_dtype = DType::kF32;  // the sums as the second GEMM leaves them
  request.x_format = "nvfp4";
  request.h_format = "nvfp4";
  request.activation_math = "portable";
  request.prepared_layout = fmt::format("{}, {}", layout_text(gate_up), layout_text(down));
  request.prepared_bytes =
      gate_up.code_bytes() + gate_up.scale_bytes() + down.code_bytes() + down.scale_bytes();
  lay_out(request);
  request.kernels = describe_steps(list_sm100_steps(request));
  return request;
}

WeightLayout sm100_gate_up(const ExpertPlan& plan) {
  return make_gate_up(plan).value();
}

WeightLayout sm100_down(const ExpertPlan& plan) {
  return make_down(plan).value();
}

Sm100Step choose_sm100_step(const ExpertPlan& plan, std::int64_t num_tokens) {
  const double rows_per_expert = expected_load(plan, num_tokens).rows_per_expert();
  Sm100Step step;
  step.gate_up = {sm100_gate_up(plan), plan.max_routes, rows_per_expert};
  step.down = {sm100_down(plan), plan.max_routes, rows_per_expert};
  step.config = select_config(step.gate_up, properties_of(plan.limits));
  return step;
}

std::vector<Sm100Range> list_sm100_steps(const ExpertPlan& plan) {
  return list_steps<Sm100Step>(plan.capacity_tokens, [&plan](std::int64_t num_tokens) {
    return choose_sm100_step(plan, num_tokens);
  });
}

Sm100Workspace sm100_workspace(const ExpertPlan& plan) {
  std::size_t next = 1;  // after the step without routes
  const auto take = [&] { return plan.workspace.entries()[next++].offset; };
  Sm100Workspace at;
  for (std::size_t* offset : {&at.first_block, &at.gate_up_groups, &at.down_groups, &at.scratch,
                              &at.x_codes, &at.x_scale, &at.x_row_scale, &at.route_codes,
                              &at.route_scale, &at.sums, &at.h_codes, &at.h_scale, &at.h_row_scale})
    *offset = take();
  return at;
}

}  // namespace halfbyte
