// SPDX-License-Identifier: Apache-2.0
//
// NVFP4 experts on a Hopper GPU, activations as given (w4a16). A build without CUDA has it too, for
// its plans; the device says that it is not there.
#include <memory>

#include "kernels/cuda/sm90/token_tiles.h"
#include "moe/backends/cuda_backend.h"
#include "moe/backends/cuda_sm90_plan.h"
#include "moe/backends/cuda_sm90_weights.h"

namespace halfbyte {
namespace {

// One step on its way to the device.
struct Launch {
  const ExpertPlan& plan;
  const PreparedSm90Experts& prepared;
  const DispatchedTokens& tokens;
  void* rows;  // of the output
  Workspace workspace;
  const device::Stream& stream;
};

Status run_decode(const Launch& launch, const Sm90Step& step) {
  sm90::MoeDecodeArgs args;
  const bool gated = launch.plan.spec.activation.gated();
  args.x = launch.tokens.x.data;
  args.route_row = launch.tokens.route_row;
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.gate_up = launch.prepared.gate_up.as<std::uint8_t>();
  args.down = launch.prepared.down.as<std::uint8_t>();
  args.alpha_gate = gated ? launch.prepared.alpha_of(launch.plan, kGate) : nullptr;
  args.alpha_up = launch.prepared.alpha_of(launch.plan, kUp);
  args.alpha_down = launch.prepared.alpha_of(launch.plan, kDown);
  args.activation = launch.plan.spec.activation;
  args.h = launch.workspace.data + sm90_workspace(launch.plan).h;
  args.rows = launch.rows;
  args.counters = launch.prepared.counters.as<std::int32_t>();
  return sm90::launch(step.decode_shape, step.decode_config, args, launch.stream.handle());
}

Status gather(const Launch& launch, const Sm90Step& step, void* x_tiles) {
  const DispatchedTokens& tokens = launch.tokens;
  const sm90::GatherTokensArgs args = {tokens.x.data, tokens.route_row, tokens.expert_offset,
                                       tokens.expert_count, x_tiles};
  return sm90::launch_gather_tokens(static_cast<int>(launch.plan.shard.num_local_experts),
                                    tokens.num_rows * launch.plan.spec.top_k,
                                    launch.plan.spec.hidden_size, step.gate_up_config.tile_tokens,
                                    args, launch.stream.handle());
}

sm90::GroupedGemmArgs gemm_args(const Launch& launch, const void* tokens, void* output) {
  sm90::GroupedGemmArgs args;
  args.tokens = tokens;
  args.output = output;
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.activation = launch.plan.spec.activation;
  return args;
}

Status run_prefill(const Launch& launch, const Sm90Step& step) {
  const Sm90Workspace at = sm90_workspace(launch.plan);
  void* x_tiles = launch.workspace.data + at.x_tiles;
  void* h_tiles = launch.workspace.data + at.h;
  HALFBYTE_RETURN_IF_ERROR(gather(launch, step, x_tiles));
  const bool gated = launch.plan.spec.activation.gated();
  sm90::GroupedGemmArgs gate_up = gemm_args(launch, x_tiles, h_tiles);
  gate_up.weights = launch.prepared.gate_up.as<std::uint8_t>();
  gate_up.alpha[0] = launch.prepared.alpha_of(launch.plan, gated ? kGate : kUp);
  gate_up.alpha[1] = launch.prepared.alpha_of(launch.plan, kUp);
  HALFBYTE_RETURN_IF_ERROR(
      sm90::launch(step.gate_up, step.gate_up_config, gate_up, launch.stream.handle()));
  sm90::GroupedGemmArgs down = gemm_args(launch, h_tiles, launch.rows);
  down.weights = launch.prepared.down.as<std::uint8_t>();
  down.alpha[0] = launch.prepared.alpha_of(launch.plan, kDown);
  return sm90::launch(step.down, step.down_config, down, launch.stream.handle());
}

Status run_step(const Launch& launch, const Sm90Step& step) {
  return step.decode ? run_decode(launch, step) : run_prefill(launch, step);
}

class Sm90Backend final : public CudaBackend {
 public:
  std::string_view name() const override { return "cuda_sm90"; }

  Status can_use(const DeviceLimits& limits) const override {
    return can_use_cuda_device(name(), 90, "Hopper", limits);
  }

  Status can_run(const MoeSpec& spec, ActivationMode mode) const override {
    return check_sm90_spec(spec, mode);
  }

  std::string note() const override { return cuda_device_note(); }

  ActivationMode resolve_auto(const MoeSpec& /*spec*/) const override {
    return ActivationMode::kW4a16;
  }

  Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& plan) override {
    HALFBYTE_ASSIGN_OR_RETURN(auto prepared,
                              allocate_sm90_experts(plan, staging_.of(plan.limits.device.index)));
    return std::unique_ptr<PreparedExpertWeights>(std::move(prepared));
  }

 private:
  Result<ExpertPlan> make_plan(ExpertPlan request) const override {
    return plan_sm90(std::move(request));
  }

  Status prepare_expert(const ExpertPlan& plan,
                        std::int64_t local_expert_idx,
                        const CanonicalExpert& expert,
                        PreparedExpertWeights& prepared,
                        const device::Stream& stream) override {
    return prepare_sm90_expert(plan, local_expert_idx, expert,
                               static_cast<PreparedSm90Experts&>(prepared), stream);
  }

  Status replace_scales(const ExpertPlan& plan,
                        const ExpertScales& scales,
                        PreparedExpertWeights& prepared,
                        const device::Stream& stream) override {
    return set_sm90_scales(plan, scales, static_cast<PreparedSm90Experts&>(prepared), stream);
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
    return run_step(
        {plan, static_cast<const PreparedSm90Experts&>(prepared), tokens, rows, workspace, stream},
        choose_sm90_step(plan, tokens.num_rows));
  }

  OnePerDevice<Sm90Staging> staging_;
};

Status Sm90Backend::launch_every_step(const ExpertPlan& plan,
                                      const PreparedExpertWeights& prepared,
                                      Workspace workspace,
                                      const device::Stream& stream) {
  for (const Sm90Range& range : list_sm90_steps(plan)) {
    const DispatchedTokens tokens = step_without_routes(plan, range.first_tokens, workspace);
    HALFBYTE_RETURN_IF_ERROR(run_step({plan, static_cast<const PreparedSm90Experts&>(prepared),
                                       tokens, nullptr, workspace, stream},
                                      range.step));
  }
  return {};
}

}  // namespace

std::shared_ptr<ExpertBackend> make_cuda_sm90_backend() {
  return std::make_shared<Sm90Backend>();
}

}  // namespace halfbyte
