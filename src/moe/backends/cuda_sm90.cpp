// SPDX-License-Identifier: Apache-2.0
//
// NVFP4 experts on a Hopper GPU: activations as given (w4a16), on the NVFP4 grid and multiplied as
// bf16 (w4a4, w4a4_dynamic), or everything in E4M3 (w4a8). A build without CUDA has it too, for its
// plans; the device says that it is not there.
#include <memory>

#include "kernels/cuda/sm90/activate_tiles.h"
#include "kernels/cuda/sm90/grid_tokens.h"
#include "kernels/cuda/sm90/token_tiles.h"
#include "moe/backends/cuda_backend.h"
#include "moe/backends/cuda_sm90_fp8_plan.h"
#include "moe/backends/cuda_sm90_plan.h"
#include "moe/backends/cuda_sm90_weights.h"
#include "moe/backends/host_backend.h"

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
  Sm90Workspace at = {};  // not of w4a8

  bool quantized() const { return is_w4a4(plan.mode); }
  bool dynamic() const { return plan.mode == ActivationMode::kW4a4Dynamic; }
  /// What the first GEMM multiplies.
  const void* x() const { return quantized() ? workspace.data + at.x_grid : tokens.x.data; }
  std::int64_t max_routes() const { return tokens.num_rows * plan.spec.top_k; }
};

Status quantize_tokens(const Launch& launch) {
  sm90::GridTokensArgs args;
  args.x = launch.tokens.x.data;
  if (!launch.dynamic()) args.scale = launch.prepared.quantize_scale(0);
  args.grid = launch.workspace.data + launch.at.x_grid;
  args.row_scale = launch.workspace.at<float>(launch.at.x_row_scale);
  return sm90::launch_grid_tokens(launch.tokens.num_rows, launch.plan.spec.hidden_size, args,
                                  launch.stream.handle());
}

// But for what the mode adds.
sm90::MoeDecodeArgs decode_args(const Launch& launch) {
  sm90::MoeDecodeArgs args;
  const bool gated = launch.plan.spec.activation.gated();
  args.route_row = launch.tokens.route_row;
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.gate_up = launch.prepared.gate_up.as<std::uint8_t>();
  args.down = launch.prepared.down.as<std::uint8_t>();
  args.alpha_gate = gated ? launch.prepared.alpha_of(launch.plan, kGate) : nullptr;
  args.alpha_up = launch.prepared.alpha_of(launch.plan, kUp);
  args.alpha_down = launch.prepared.alpha_of(launch.plan, kDown);
  args.activation = launch.plan.spec.activation;
  args.rows = launch.rows;
  args.counters = launch.prepared.counters.as<std::int32_t>();
  return args;
}

Status run_decode(const Launch& launch, const Sm90Step& step) {
  sm90::MoeDecodeArgs args = decode_args(launch);
  args.x = launch.x();
  args.h = launch.workspace.data + launch.at.h;
  args.h_scale = launch.prepared.quantize_scale(1);
  return sm90::launch(step.decode_shape, step.decode_config, args, launch.stream.handle());
}

Status gather(const Launch& launch, const Sm90Step& step, void* x_tiles) {
  const DispatchedTokens& tokens = launch.tokens;
  const sm90::GatherTokensArgs args = {launch.x(), tokens.route_row, tokens.expert_offset,
                                       tokens.expert_count, x_tiles};
  return sm90::launch_gather_tokens(static_cast<int>(launch.plan.shard.num_local_experts),
                                    launch.max_routes(), launch.plan.spec.hidden_size,
                                    step.gate_up_config.tile_tokens, args, launch.stream.handle());
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

// Sums of gate and up to h, whose rows find their scales.
Status activate(const Launch& launch, const Sm90Step& step, const void* sums, void* h_tiles) {
  const bool gated = launch.plan.spec.activation.gated();
  sm90::ActivateTilesArgs args;
  args.sums = static_cast<const float*>(sums);
  args.route_row = launch.tokens.route_row;
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.activation = launch.plan.spec.activation;
  args.row_scale = launch.workspace.at<float>(launch.at.x_row_scale);
  if (gated) args.gate_scale = launch.prepared.alpha_of(launch.plan, kGate);
  args.up_scale = launch.prepared.alpha_of(launch.plan, kUp);
  args.down_scale = launch.prepared.alpha_of(launch.plan, kDown);
  args.dst = h_tiles;
  args.row_alpha = launch.workspace.at<float>(launch.at.row_alpha);
  return sm90::launch_activate_tiles(step.gate_up, launch.max_routes(),
                                     step.gate_up_config.tile_tokens, args, launch.stream.handle());
}

// Into token tiles of h; in w4a4_dynamic through the sums, to which no alpha is applied yet.
Status run_gate_up(const Launch& launch, const Sm90Step& step, const void* x_tiles, void* h_tiles) {
  void* const sums = launch.workspace.data + launch.at.sums;
  sm90::GroupedGemmArgs args = gemm_args(launch, x_tiles, launch.dynamic() ? sums : h_tiles);
  args.weights = launch.prepared.gate_up.as<std::uint8_t>();
  if (!launch.dynamic()) {
    const bool gated = launch.plan.spec.activation.gated();
    args.alpha[0] = launch.prepared.alpha_of(launch.plan, gated ? kGate : kUp);
    args.alpha[1] = launch.prepared.alpha_of(launch.plan, kUp);
  }
  args.h_scale = launch.prepared.quantize_scale(1);
  HALFBYTE_RETURN_IF_ERROR(
      sm90::launch(step.gate_up, step.gate_up_config, args, launch.stream.handle()));
  return launch.dynamic() ? activate(launch, step, sums, h_tiles) : Status();
}

Status run_prefill(const Launch& launch, const Sm90Step& step) {
  void* x_tiles = launch.workspace.data + launch.at.x_tiles;
  void* h_tiles = launch.workspace.data + launch.at.h;
  HALFBYTE_RETURN_IF_ERROR(gather(launch, step, x_tiles));
  HALFBYTE_RETURN_IF_ERROR(run_gate_up(launch, step, x_tiles, h_tiles));
  sm90::GroupedGemmArgs down = gemm_args(launch, h_tiles, launch.rows);
  down.weights = launch.prepared.down.as<std::uint8_t>();
  down.alpha[0] = launch.prepared.alpha_of(launch.plan, kDown);
  down.row_alpha = launch.workspace.at<float>(launch.at.row_alpha);
  return sm90::launch(step.down, step.down_config, down, launch.stream.handle());
}

Status run_step(const Launch& launch, const Sm90Step& step) {
  if (launch.quantized()) HALFBYTE_RETURN_IF_ERROR(quantize_tokens(launch));
  return step.decode ? run_decode(launch, step) : run_prefill(launch, step);
}

// Rows of x, or of h in fp32, as an operand.
Status quantize_fp8(const Launch& launch,
                    const sm90::QuantizeTokensArgs& rows,
                    std::int64_t cols,
                    int tile_tokens,
                    const Sm90Fp8Operand& operand) {
  sm90::QuantizeTokensArgs args = rows;
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.dst = launch.workspace.at<std::uint8_t>(operand.values);
  args.scale = launch.workspace.at<float>(operand.scales);
  return sm90::launch_quantize_tokens(static_cast<int>(launch.plan.shard.num_local_experts),
                                      launch.max_routes(), cols, tile_tokens, args,
                                      launch.stream.handle());
}

sm90::GroupedGemmFp8Args fp8_args(const Launch& launch,
                                  const Sm90Fp8Operand& operand,
                                  const device::DeviceBuffer& weights,
                                  const device::DeviceBuffer& row_factor) {
  sm90::GroupedGemmFp8Args args;
  args.tokens = launch.workspace.at<std::uint8_t>(operand.values);
  args.token_scale = launch.workspace.at<float>(operand.scales);
  args.expert_offset = launch.tokens.expert_offset;
  args.expert_count = launch.tokens.expert_count;
  args.weights = weights.as<std::uint8_t>();
  args.row_factor = row_factor.as<float>();
  args.activation = launch.plan.spec.activation;
  return args;
}

Status run_fp8_gate_up(const Launch& launch, const Sm90Fp8Step& step, const Sm90Fp8Workspace& at) {
  const bool gated = launch.plan.spec.activation.gated();
  HALFBYTE_RETURN_IF_ERROR(
      quantize_fp8(launch, {.x = launch.tokens.x.data, .route_row = launch.tokens.route_row},
                   launch.plan.spec.hidden_size, step.gate_up_config.tile_tokens, at.x));
  sm90::GroupedGemmFp8Args args =
      fp8_args(launch, at.x, launch.prepared.gate_up, launch.prepared.gate_up_factor);
  args.alpha[0] = launch.prepared.alpha_of(launch.plan, gated ? kGate : kUp);
  args.alpha[1] = launch.prepared.alpha_of(launch.plan, kUp);
  args.output = launch.workspace.data + at.h_f32;
  return sm90::launch(step.gate_up, step.gate_up_config, args, launch.stream.handle());
}

Status run_fp8_decode(const Launch& launch, const Sm90Fp8Step& step, const Sm90Fp8Workspace& at) {
  const sm90::E4m3RowsArgs x = {launch.tokens.x.data, launch.workspace.data + at.x.values,
                                launch.workspace.at<float>(at.x.scales)};
  HALFBYTE_RETURN_IF_ERROR(sm90::launch_e4m3_rows(
      launch.tokens.num_rows, launch.plan.spec.hidden_size, x, launch.stream.handle()));
  sm90::MoeDecodeArgs args = decode_args(launch);
  args.x = x.dst;
  args.x_block_scale = x.block_scale;
  args.gate_up_factor = launch.prepared.gate_up_factor.as<float>();
  args.down_factor = launch.prepared.down_factor.as<float>();
  args.h = launch.workspace.data + at.h.values;
  args.h_f32 = launch.workspace.at<float>(at.h_f32);
  args.h_block_scale = launch.workspace.at<float>(at.h.scales);
  return sm90::launch(step.decode_shape, step.decode_config, args, launch.stream.handle());
}

Status run_fp8_step(const Launch& launch, const Sm90Fp8Step& step) {
  const Sm90Fp8Workspace at = sm90_fp8_workspace(launch.plan);
  if (step.decode) return run_fp8_decode(launch, step, at);
  HALFBYTE_RETURN_IF_ERROR(run_fp8_gate_up(launch, step, at));
  HALFBYTE_RETURN_IF_ERROR(
      quantize_fp8(launch, {.x = launch.workspace.data + at.h_f32, .f32 = true},
                   launch.plan.shard.intermediate_size, step.down_config.tile_tokens, at.h));
  sm90::GroupedGemmFp8Args args =
      fp8_args(launch, at.h, launch.prepared.down, launch.prepared.down_factor);
  args.alpha[0] = launch.prepared.alpha_of(launch.plan, kDown);
  args.output = launch.rows;
  return sm90::launch(step.down, step.down_config, args, launch.stream.handle());
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

  std::vector<TacticList> list_tactics(const ExpertPlan& plan) const override {
    return list_sm90_tactics(plan);
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
    const auto& experts = static_cast<const PreparedSm90Experts&>(prepared);
    if (plan.mode == ActivationMode::kW4a8) {
      return run_fp8_step({plan, experts, tokens, rows, workspace, stream},
                          choose_sm90_fp8_step(plan, tokens.num_rows));
    }
    return run_step({plan, experts, tokens, rows, workspace, stream, sm90_workspace(plan)},
                    choose_sm90_step(plan, tokens.num_rows));
  }

  OnePerDevice<Sm90Staging> staging_;
};

Status Sm90Backend::launch_every_step(const ExpertPlan& plan,
                                      const PreparedExpertWeights& prepared,
                                      Workspace workspace,
                                      const device::Stream& stream) {
  const auto& experts = static_cast<const PreparedSm90Experts&>(prepared);
  if (plan.mode == ActivationMode::kW4a8) {
    for (const auto& range : list_sm90_fp8_steps(plan)) {
      DispatchedTokens tokens = step_without_routes(plan, range.first_tokens, workspace);
      tokens.x.data = workspace.data + sm90_fp8_workspace(plan).x.values;  // any rows, as below
      HALFBYTE_RETURN_IF_ERROR(
          run_fp8_step({plan, experts, tokens, nullptr, workspace, stream}, range.step));
    }
    return {};
  }
  for (const Sm90Range& range : list_sm90_steps(plan)) {
    DispatchedTokens tokens = step_without_routes(plan, range.first_tokens, workspace);
    // Any rows will do, since no route reads them.
    tokens.x.data = workspace.data + sm90_workspace(plan).x_grid;
    HALFBYTE_RETURN_IF_ERROR(run_step(
        {plan, experts, tokens, nullptr, workspace, stream, sm90_workspace(plan)}, range.step));
  }
  return {};
}

}  // namespace

std::shared_ptr<ExpertBackend> make_cuda_sm90_backend() {
  return std::make_shared<Sm90Backend>();
}

}  // namespace halfbyte
