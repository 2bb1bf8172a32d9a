// SPDX-License-Identifier: Apache-2.0
//
// NVFP4 experts on a Blackwell GPU, activations in NVFP4 too (w4a4, w4a4_dynamic): x is quantised
// once a token, gathered by expert, multiplied, activated and quantised again, multiplied. A build
// without CUDA has it too, for its plans. Compiled, never run on such a GPU.
#include <fmt/format.h>

#include <algorithm>

#include "moe/backends/cuda_backend.h"
#include "moe/backends/cuda_sm100_plan.h"
#include "moe/backends/cuda_sm100_weights.h"

namespace halfbyte {
namespace {

constexpr std::string_view kNeverRun = "compiled, never run on such a device";

// One step on its way to the device.
struct Launch {
  const ExpertPlan& plan;
  const PreparedSm100Experts& prepared;
  const DispatchedTokens& tokens;
  void* rows;  // of the output
  Workspace workspace;
  const device::Stream& stream;
  Sm100Workspace at;

  template <typename T>
  T* buffer(std::size_t offset) const {
    return workspace.at<T>(offset);
  }
  bool dynamic() const { return plan.mode == ActivationMode::kW4a4Dynamic; }
};

cuda::RouteTable routes_of(const Launch& launch) {
  const DispatchedTokens& tokens = launch.tokens;
  return {tokens.expert_offset,
          tokens.expert_count,
          launch.buffer<std::int32_t>(launch.at.first_block),
          tokens.route_row,
          static_cast<int>(launch.plan.shard.num_local_experts),
          std::min(tokens.num_rows * launch.plan.spec.top_k, launch.plan.max_routes)};
}

sm100::GroupedGemmArgs gate_up_args(const Launch& launch) {
  sm100::GroupedGemmArgs args;
  args.weight_codes = launch.prepared.gate_up_codes.as<std::uint8_t>();
  args.weight_scale = launch.prepared.gate_up_scale.as<std::uint8_t>();
  args.token_codes = launch.buffer<std::uint8_t>(launch.at.route_codes);
  args.token_scale = launch.buffer<std::uint8_t>(launch.at.route_scale);
  args.sums = launch.buffer<float>(launch.at.sums);
  args.groups = launch.buffer<std::byte>(launch.at.gate_up_groups);
  args.scratch = launch.buffer<std::byte>(launch.at.scratch);
  return args;
}

// Into the output's rows; in w4a4 an expert has one alpha, which the GEMM applies.
sm100::GroupedGemmArgs down_args(const Launch& launch) {
  sm100::GroupedGemmArgs args;
  args.weight_codes = launch.prepared.down_codes.as<std::uint8_t>();
  args.weight_scale = launch.prepared.down_scale.as<std::uint8_t>();
  args.token_codes = launch.buffer<std::uint8_t>(launch.at.h_codes);
  args.token_scale = launch.buffer<std::uint8_t>(launch.at.h_scale);
  if (!launch.dynamic()) args.alpha = launch.prepared.of_projection(launch.plan, kDown);
  args.sums = static_cast<float*>(launch.rows);
  args.groups = launch.buffer<std::byte>(launch.at.down_groups);
  args.scratch = launch.buffer<std::byte>(launch.at.scratch);
  return args;
}

Status quantize_tokens(const Launch& launch) {
  cuda::QuantizeRowsArgs args;
  args.x = launch.tokens.x.data;
  if (!launch.dynamic()) args.scale = launch.prepared.activation_scale(launch.plan, 0);
  args.codes = launch.buffer<std::uint8_t>(launch.at.x_codes);
  args.block_scale = launch.buffer<std::uint8_t>(launch.at.x_scale);
  args.row_scale = launch.buffer<float>(launch.at.x_row_scale);
  return cuda::launch_quantize_rows(launch.tokens.num_rows, launch.plan.spec.hidden_size, args,
                                    launch.stream.handle());
}

Status gather_routes(const Launch& launch, const Sm100Step& step, const cuda::RouteTable& routes) {
  const cuda::GatherRowsArgs args = {routes, launch.buffer<std::uint8_t>(launch.at.x_codes),
                                     launch.buffer<std::uint8_t>(launch.at.x_scale),
                                     launch.buffer<std::uint8_t>(launch.at.route_codes),
                                     launch.buffer<std::uint8_t>(launch.at.route_scale)};
  return cuda::launch_gather_rows(cuda::operand_of(step.gate_up.weights), args,
                                  launch.stream.handle());
}

Status activate(const Launch& launch, const Sm100Step& step, const cuda::RouteTable& routes) {
  cuda::ActivateRowsArgs args;
  const ActivationSpec& activation = launch.plan.spec.activation;
  args.routes = routes;
  args.sums = launch.buffer<float>(launch.at.sums);
  args.sum_cols = step.gate_up.weights.code_rows();
  args.activation = activation;
  if (activation.gated()) args.gate_scale = launch.prepared.of_projection(launch.plan, kGate);
  args.up_scale = launch.prepared.of_projection(launch.plan, kUp);
  if (launch.dynamic()) {
    args.row_scale = launch.buffer<float>(launch.at.x_row_scale);
  } else {
    args.h_scale = launch.prepared.activation_scale(launch.plan, 1);
  }
  args.codes = launch.buffer<std::uint8_t>(launch.at.h_codes);
  args.block_scale = launch.buffer<std::uint8_t>(launch.at.h_scale);
  args.h_row_scale = launch.buffer<float>(launch.at.h_row_scale);
  return cuda::launch_activate_rows(cuda::operand_of(step.down.weights), args,
                                    launch.stream.handle());
}

Status scale_rows(const Launch& launch, const cuda::RouteTable& routes) {
  const cuda::ScaleRowsArgs args = {routes, static_cast<float*>(launch.rows),
                                    launch.prepared.of_projection(launch.plan, kDown),
                                    launch.buffer<float>(launch.at.h_row_scale)};
  return cuda::launch_scale_rows(launch.plan.spec.hidden_size, args, launch.stream.handle());
}

Status run_step(const Launch& launch, const Sm100Step& step) {
  const cuda::RouteTable routes = routes_of(launch);
  if (routes.max_routes == 0 || routes.num_experts == 0) return {};
  const sm100::GroupedGemmArgs gate_up = gate_up_args(launch);
  const sm100::GroupedGemmArgs down = down_args(launch);
  CUstream_st* const stream = launch.stream.handle();
  HALFBYTE_RETURN_IF_ERROR(quantize_tokens(launch));
  HALFBYTE_RETURN_IF_ERROR(
      sm100::launch_fill_groups({step.gate_up.weights, gate_up}, {step.down.weights, down}, routes,
                                launch.buffer<std::int32_t>(launch.at.first_block), stream));
  HALFBYTE_RETURN_IF_ERROR(gather_routes(launch, step, routes));
  HALFBYTE_RETURN_IF_ERROR(sm100::launch(step.gate_up, step.config, gate_up, stream));
  HALFBYTE_RETURN_IF_ERROR(activate(launch, step, routes));
  HALFBYTE_RETURN_IF_ERROR(sm100::launch(step.down, step.config, down, stream));
  return launch.dynamic() ? scale_rows(launch, routes) : Status();
}

class Sm100Backend final : public CudaBackend {
 public:
  std::string_view name() const override { return "cuda_sm100"; }

  Status can_use(const DeviceLimits& limits) const override {
    HALFBYTE_RETURN_IF_ERROR(
        can_use_cuda_device(name(), 100, fmt::format("Blackwell; {}", kNeverRun), limits));
    if (sm100::kernels_are_built() || device::num_devices() == 0) return {};
    return {StatusCode::kUnsupported,
            "cuda_sm100: this build has no kernels for sm_100a: configure with "
            "CMAKE_CUDA_ARCHITECTURES=100a-real (the cuda preset has it)"};
  }

  Status can_run(const MoeSpec& spec, ActivationMode mode) const override {
    return check_sm100_spec(spec, mode);
  }

  std::string note() const override { return fmt::format("{}; {}", cuda_device_note(), kNeverRun); }

  // Never from w4a4 to another mode because a scale is missing.
  ActivationMode resolve_auto(const MoeSpec& spec) const override {
    return spec.declares_activation_quantization ? ActivationMode::kW4a4 : ActivationMode::kW4a16;
  }

  Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& plan) override {
    HALFBYTE_ASSIGN_OR_RETURN(auto prepared,
                              allocate_sm100_experts(plan, staging_.of(plan.limits.device.index)));
    return std::unique_ptr<PreparedExpertWeights>(std::move(prepared));
  }

 private:
  Result<ExpertPlan> make_plan(ExpertPlan request) const override {
    return plan_sm100(std::move(request));
  }

  Status prepare_expert(const ExpertPlan& plan,
                        std::int64_t local_expert_idx,
                        const CanonicalExpert& expert,
                        PreparedExpertWeights& prepared,
                        const device::Stream& stream) override {
    return prepare_sm100_expert(plan, local_expert_idx, expert,
                                static_cast<PreparedSm100Experts&>(prepared), stream);
  }

  Status replace_scales(const ExpertPlan& plan,
                        const ExpertScales& scales,
                        PreparedExpertWeights& prepared,
                        const device::Stream& stream) override {
    return set_sm100_scales(plan, scales, static_cast<PreparedSm100Experts&>(prepared), stream);
  }

  Status launch_every_step(const ExpertPlan& plan,
                           const PreparedExpertWeights& prepared,
                           Workspace workspace,
                           const device::Stream& stream) override;

  Status launch_step(const ExpertPlan& plan,
                     const PreparedExpertWeights& prepared,
                     const DispatchedTokens& tokens,
                     void* rows,
                     Workspace workspace,
                     const device::Stream& stream) override {
    return run_step({plan, static_cast<const PreparedSm100Experts&>(prepared), tokens, rows,
                     workspace, stream, sm100_workspace(plan)},
                    choose_sm100_step(plan, tokens.num_rows));
  }

  OnePerDevice<Sm100Staging> staging_;
};

Status Sm100Backend::launch_every_step(const ExpertPlan& plan,
                                       const PreparedExpertWeights& prepared,
                                       Workspace workspace,
                                       const device::Stream& stream) {
  for (const Sm100Range& range : list_sm100_steps(plan)) {
    DispatchedTokens tokens = step_without_routes(plan, 1, workspace);
    // Any row will do, since no route reads its codes: scales of 128 rows are longer than a row.
    tokens.x.data = workspace.data + sm100_workspace(plan).route_scale;
    HALFBYTE_RETURN_IF_ERROR(run_step({plan, static_cast<const PreparedSm100Experts&>(prepared),
                                       tokens, nullptr, workspace, stream, sm100_workspace(plan)},
                                      range.step));
  }
  return {};
}

}  // namespace

std::shared_ptr<ExpertBackend> make_cuda_sm100_backend() {
  return std::make_shared<Sm100Backend>();
}

}  // namespace halfbyte
