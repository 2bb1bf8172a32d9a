// SPDX-License-Identifier: Apache-2.0
//
// The definition of the layer's numbers as a backend: canonical weights, plain loops, every mode.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "formats/owned_matrix.h"
#include "kernels/reference/expert.h"
#include "moe/backends/host_backend.h"

namespace halfbyte {
namespace {

struct OwnedExpert {
  OwnedMatrix gate, up, down;
  CanonicalExpert view() const { return {gate.view, up.view, down.view}; }
};

struct PreparedReferenceExperts : PreparedExpertWeights {
  std::vector<OwnedExpert> experts;
  ExpertScales scales;
};

std::int64_t weight_bytes(WeightFormat format, std::int64_t num_weights) {
  if (format == WeightFormat::kNvfp4) return num_weights / 2 + num_weights / 16;
  return format == WeightFormat::kFp8 ? num_weights : num_weights * 2;
}

reference::ExpertScalars scalars_of(const ExpertPlan& plan,
                                    const ExpertScales& scales,
                                    std::size_t expert_idx) {
  return {.gate_global_scale =
              plan.spec.activation.gated() ? scales.gate_global_scale[expert_idx] : 1.0F,
          .up_global_scale = scales.up_global_scale[expert_idx],
          .down_global_scale = scales.down_global_scale[expert_idx],
          .s1 = scales.s1,
          .s2 = scales.s2};
}

// One route into its row of the output; `x_row` is scratch [H].
void run_route(const ExpertPlan& plan,
               const PreparedReferenceExperts& prepared,
               const DispatchedTokens& tokens,
               std::size_t expert_idx,
               std::int64_t route,
               float* x_row,
               float* y_row) {
  const std::int64_t row = row_of_route(tokens, route);
  const CanonicalExpert expert = prepared.experts[expert_idx].view();
  const reference::ExpertScalars scalars = scalars_of(plan, prepared.scales, expert_idx);
  if (tokens.x.data != nullptr) {
    widen_x_row(tokens, row, x_row);
    reference::run_expert_row(expert, plan.spec.activation, plan.mode, scalars, x_row, y_row);
    return;
  }
  const std::int64_t hidden = plan.spec.hidden_size;
  reference::run_expert_row_quantized(
      expert, plan.spec.activation, plan.mode, scalars, tokens.x_codes + row * hidden / 2,
      tokens.x_block_scale + row * hidden / 16,
      tokens.x_row_scale != nullptr ? tokens.x_row_scale[row] : 1.0F, y_row);
}

class ReferenceBackend final : public ExpertBackend {
 public:
  std::string_view name() const override { return "reference"; }

  Status can_run(const MoeSpec& spec, ActivationMode mode) const override {
    if (mode == ActivationMode::kAuto) {
      return {StatusCode::kUnsupported,
              "reference runs every mode and chooses none: give --moe-activation-mode"};
    }
    return check_host_spec(name(), spec, mode);
  }

  std::string note() const override { return "plain C++, sums in fp64, one thread"; }

  // It has no default: can_run answers kAuto with what to give.
  ActivationMode resolve_auto(const MoeSpec& /*spec*/) const override {
    return ActivationMode::kAuto;
  }

  Result<ExpertPlan> plan(ExpertPlan request) const override {
    HALFBYTE_RETURN_IF_ERROR(can_run(request.spec, request.mode));
    HALFBYTE_RETURN_IF_ERROR(complete_request(request));
    const std::int64_t matrices = request.spec.activation.gated() ? 3 : 2;
    const bool quantised = is_w4a4(request.mode);
    const bool fp8 = request.mode == ActivationMode::kW4a8;
    request.backend = name();
    request.token_layout = TokenLayout::kTokenMajor;
    request.row_dtype = DType::kF32;
    request.x_format =
        quantised ? "nvfp4" : (fp8 ? "e4m3" : activation_dtype_name(request.spec.x_dtype));
    request.h_format = quantised ? "nvfp4" : (fp8 ? "e4m3" : "fp32");
    request.prepared_layout = "canonical v1";
    request.prepared_bytes =
        request.shard.num_local_experts *
        weight_bytes(request.spec.expert_format,
                     matrices * request.spec.hidden_size * request.shard.intermediate_size);
    request.workspace = {};
    request.workspace.add("x_row",
                          static_cast<std::size_t>(request.spec.hidden_size) * sizeof(float));
    return request;
  }

  Result<std::unique_ptr<PreparedExpertWeights>> allocate(const ExpertPlan& plan) override {
    auto prepared = std::make_unique<PreparedReferenceExperts>();
    prepared->experts.resize(static_cast<std::size_t>(plan.shard.num_local_experts));
    return std::unique_ptr<PreparedExpertWeights>(std::move(prepared));
  }

  Status prepare(const ExpertPlan& plan,
                 std::int64_t local_expert_idx,
                 const CanonicalExpert& expert,
                 PreparedExpertWeights& prepared,
                 device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_expert(plan, local_expert_idx, expert));
    OwnedExpert& owned = static_cast<PreparedReferenceExperts&>(prepared)
                             .experts[static_cast<std::size_t>(local_expert_idx)];
    owned.gate.assign(expert.gate);
    owned.up.assign(expert.up);
    owned.down.assign(expert.down);
    return {};
  }

  Status set_scales(const ExpertPlan& plan,
                    const ExpertScales& scales,
                    PreparedExpertWeights& prepared,
                    device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_scales(plan, scales));
    static_cast<PreparedReferenceExperts&>(prepared).scales = scales;
    return {};
  }

  Status warm_up(const ExpertPlan& /*plan*/,
                 const PreparedExpertWeights& /*prepared*/,
                 Workspace /*workspace*/,
                 device::Stream* /*stream*/) override {
    return {};
  }

  // The kernels keep scratch per thread: a thread's first run allocates it, later runs do not.
  Status run(const ExpertPlan& plan,
             const PreparedExpertWeights& prepared,
             const DispatchedTokens& tokens,
             const ExpertOutput& output,
             Workspace workspace,
             device::Stream* /*stream*/) override {
    HALFBYTE_RETURN_IF_ERROR(check_tokens(plan, tokens, output, workspace));
    const auto& experts = static_cast<const PreparedReferenceExperts&>(prepared);
    auto* x_row = workspace.at<float>(0);
    auto* y = static_cast<float*>(output.rows.data);
    for (std::int64_t e = 0; e < plan.shard.num_local_experts; ++e) {
      const std::int64_t begin = tokens.expert_offset[e];
      for (std::int64_t route = begin; route < begin + tokens.expert_count[e]; ++route) {
        run_route(plan, experts, tokens, static_cast<std::size_t>(e), route, x_row,
                  y + route * output.rows.row_stride);
      }
    }
    return {};
  }
};

}  // namespace

std::shared_ptr<ExpertBackend> make_reference_backend() {
  return std::make_shared<ReferenceBackend>();
}

}  // namespace halfbyte
