// SPDX-License-Identifier: Apache-2.0
#include "moe/backends/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/stream.h"
#include "moe/backends/cuda_tactic_timer.h"
#include "moe/backends/host_backend.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

constexpr std::size_t kAlignment = 128;

Status wrong(const ExpertPlan& plan, std::string_view what) {
  return {StatusCode::kInvalidArgument, fmt::format("{}: {}", plan.backend, what)};
}

// What the host can see of a step's tokens: kInvalidArgument, or kCapacityExceeded.
Status check_step(const ExpertPlan& plan,
                  const DispatchedTokens& tokens,
                  const ExpertOutput& output,
                  Workspace workspace,
                  const device::Stream* stream) {
  if (stream == nullptr) return wrong(plan, "a step needs a stream");
  if (tokens.num_rows > plan.capacity_tokens) {
    return {StatusCode::kCapacityExceeded,
            fmt::format("{}: {} rows of x, the plan holds {}", plan.backend, tokens.num_rows,
                        plan.capacity_tokens)};
  }
  if (tokens.x.data == nullptr || tokens.x.dtype != DType::kBf16 ||
      tokens.x.cols != plan.spec.hidden_size || tokens.x.row_stride != tokens.x.cols)
    return wrong(plan, fmt::format("x: want bf16 rows of {} without gaps", plan.spec.hidden_size));
  if (output.rows.dtype != plan.row_dtype || output.rows.rows < plan.max_routes)
    return wrong(plan, fmt::format("output: want {} rows of {}", plan.max_routes,
                                   dtype_name(plan.row_dtype)));
  if (workspace.bytes >= plan.workspace.total_bytes()) return {};
  return wrong(plan, fmt::format("workspace: want {} bytes, got {}", plan.workspace.total_bytes(),
                                 workspace.bytes));
}

// Zeroes the offsets and counts of step_without_routes(), in stream order.
Status clear_step_without_routes(const ExpertPlan& plan,
                                 Workspace workspace,
                                 const device::Stream& stream) {
  const WorkspaceLayout::Entry& zeros = plan.workspace.entries().front();
  return device::fill_bytes(workspace.data + zeros.offset, std::byte{0}, zeros.bytes, stream);
}

}  // namespace

Status can_use_cuda_device(std::string_view backend,
                           int compute_capability,
                           std::string_view family,
                           const DeviceLimits& limits) {
  if (limits.device.kind != DeviceKind::kCuda) {
    auto properties = device::read_properties(0);
    if (!properties.ok()) return properties.take_status().with_context(backend);
    return {StatusCode::kUnsupported,
            fmt::format("{}: the layer lives on the host, want a CUDA device (MoeOptions::device)",
                        backend)};
  }
  if (limits.compute_capability == compute_capability) return {};
  return {StatusCode::kUnsupported,
          fmt::format("{}: CUDA device {} has compute capability {}, want {} ({})", backend,
                      limits.device.index, limits.compute_capability, compute_capability, family)};
}

Status check_cuda_spec(std::string_view backend, const MoeSpec& spec) {
  const auto refuse = [backend](std::string_view what) {
    return Status(StatusCode::kUnsupported, fmt::format("{}: {}", backend, what));
  };
  HALFBYTE_RETURN_IF_ERROR(check_spec(spec));
  if (spec.expert_format != WeightFormat::kNvfp4)
    return refuse(
        fmt::format("experts are {}, want nvfp4", weight_format_name(spec.expert_format)));
  if (spec.x_dtype != DType::kBf16)
    return refuse(fmt::format("x is {}, want BF16", dtype_name(spec.x_dtype)));
  if (spec.apply_router_weight_on_input)
    return refuse("router weights on the input are not applied here yet");
  return {};
}

std::string cuda_device_note() {
  const auto properties = device::read_properties(0);
  if (!properties.ok()) return std::string(properties.status().message());
  return fmt::format("{}, {} multiprocessors", properties.value().name,
                     properties.value().num_multiprocessors);
}

device::Properties properties_of(const DeviceLimits& limits) {
  device::Properties properties;
  properties.compute_capability = limits.compute_capability;
  properties.num_multiprocessors = limits.num_multiprocessors;
  properties.shared_memory_bytes = limits.shared_memory_bytes;
  return properties;
}

ExpectedLoad expected_load(const ExpertPlan& plan, std::int64_t num_tokens) {
  const auto tokens = static_cast<double>(num_tokens);
  const auto local = static_cast<double>(plan.shard.num_local_experts);
  const double share =
      static_cast<double>(plan.spec.top_k) / static_cast<double>(plan.spec.num_experts);
  return {tokens * share * local, local * (1 - std::pow(1 - share, tokens))};
}

Status allocate(device::DeviceBuffer& buffer, std::int64_t bytes) {
  HALFBYTE_ASSIGN_OR_RETURN(buffer,
                            device::DeviceBuffer::allocate(static_cast<std::size_t>(bytes)));
  return {};
}

void add_step_without_routes(ExpertPlan& plan) {
  const auto experts = static_cast<std::size_t>(plan.shard.num_local_experts);
  plan.workspace.add("no_routes",
                     (experts + 1) * sizeof(std::int64_t) + experts * sizeof(std::int32_t),
                     kAlignment);
}

DispatchedTokens step_without_routes(const ExpertPlan& plan,
                                     std::int64_t num_tokens,
                                     Workspace workspace) {
  DispatchedTokens tokens;
  const std::size_t at = plan.workspace.entries().front().offset;
  const auto offsets = static_cast<std::size_t>(plan.shard.num_local_experts + 1);
  tokens.expert_offset = workspace.at<std::int64_t>(at);
  tokens.expert_count = workspace.at<std::int32_t>(at + offsets * sizeof(std::int64_t));
  tokens.num_rows = num_tokens;
  tokens.num_routes = -1;
  return tokens;
}

std::vector<float> by_projection(const ExpertPlan& plan, const ExpertScales& scales) {
  const bool dynamic = plan.mode == ActivationMode::kW4a4Dynamic;
  const std::int64_t experts = plan.shard.num_local_experts;
  std::vector<float> values(static_cast<std::size_t>(3 * experts), 1.0F);
  const auto fill = [&](int projection, const std::vector<float>& from) {
    std::copy_n(from.begin(), experts, values.begin() + projection * experts);
  };
  if (plan.spec.activation.gated())
    fill(kGate, dynamic ? scales.gate_global_scale : scales.gate_alpha);
  fill(kUp, dynamic ? scales.up_global_scale : scales.up_alpha);
  fill(kDown, dynamic ? scales.down_global_scale : scales.down_alpha);
  return values;
}

Result<ExpertPlan> CudaBackend::plan(ExpertPlan request) const {
  if (request.mode == ActivationMode::kAuto) request.mode = resolve_auto(request.spec);
  HALFBYTE_RETURN_IF_ERROR(can_use(request.limits));
  HALFBYTE_RETURN_IF_ERROR(can_run(request.spec, request.mode));
  return make_plan(std::move(request));
}

Status CudaBackend::prepare(const ExpertPlan& plan,
                            std::int64_t local_expert_idx,
                            const CanonicalExpert& expert,
                            PreparedExpertWeights& prepared,
                            device::Stream* stream) {
  HALFBYTE_RETURN_IF_ERROR(check_expert(plan, local_expert_idx, expert));
  if (stream == nullptr) return wrong(plan, "loading needs a stream");
  return prepare_expert(plan, local_expert_idx, expert, prepared, *stream);
}

Status CudaBackend::set_scales(const ExpertPlan& plan,
                               const ExpertScales& scales,
                               PreparedExpertWeights& prepared,
                               device::Stream* stream) {
  HALFBYTE_RETURN_IF_ERROR(check_scales(plan, scales));
  if (stream == nullptr) return wrong(plan, "loading needs a stream");
  return replace_scales(plan, scales, prepared, *stream);
}

Result<std::unique_ptr<TacticTimer>> CudaBackend::make_tactic_timer(
    const ExpertPlan& plan, const PreparedExpertWeights& prepared, device::Stream* stream) {
  if (stream == nullptr) return wrong(plan, "measuring needs a stream");
  return make_cuda_tactic_timer(*this, plan, prepared, *stream);
}

Status CudaBackend::warm_up(const ExpertPlan& plan,
                            const PreparedExpertWeights& prepared,
                            Workspace workspace,
                            device::Stream* stream) {
  if (stream == nullptr) return wrong(plan, "warming up needs a stream");
  HALFBYTE_RETURN_IF_ERROR(clear_step_without_routes(plan, workspace, *stream));
  HALFBYTE_RETURN_IF_ERROR(launch_every_step(plan, prepared, workspace, *stream));
  return stream->synchronize();
}

Status CudaBackend::run(const ExpertPlan& plan,
                        const PreparedExpertWeights& prepared,
                        const DispatchedTokens& tokens,
                        const ExpertOutput& output,
                        Workspace workspace,
                        device::Stream* stream) {
  HALFBYTE_RETURN_IF_ERROR(check_step(plan, tokens, output, workspace, stream));
  return launch_step(plan, prepared, tokens, output.rows.data, workspace, *stream);
}

}  // namespace halfbyte
