// SPDX-License-Identifier: Apache-2.0
#include "moe/plan.h"

#include <fmt/format.h>

#include <limits>

#include "moe/compatibility.h"
#include "moe/registry.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

constexpr std::size_t kPartAlignment = 128;  // a scale tile's height; also two cache lines

Status check_capacity_option(std::int64_t capacity_tokens) {
  if (capacity_tokens > 0 && capacity_tokens <= std::numeric_limits<std::int32_t>::max()) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("capacity_tokens is {}, want the tokens of the largest forward of one rank, "
                      "1 .. {}",
                      capacity_tokens, std::numeric_limits<std::int32_t>::max())};
}

Status check_ranks(const MoeOptions& options, int num_ranks, int rank) {
  if (options.tp_size != num_ranks) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--tp-size is {} but the transport connects {} rank{}: give --tp-size {}",
                        options.tp_size, num_ranks, num_ranks == 1 ? "" : "s", num_ranks)};
  }
  if (rank >= 0 && rank < num_ranks) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("rank is {}, want 0 .. {}", rank, num_ranks - 1)};
}

std::string dispatcher_name(std::string_view transport, const MoeOptions& options) {
  if (transport == "local") return "local";
  return options.a2a_backend == "all_to_all" ? "all_to_all" : "standard";
}

// Tokens travel under all-to-all, and under the standard scheme when ranks have tokens of their
// own. Over all-to-all the w4a4 modes send what the experts read anyway.
Payload choose_payload(std::string_view dispatcher,
                       const MoeOptions& options,
                       ActivationMode mode) {
  const bool all_to_all = dispatcher == "all_to_all";
  const bool travels = all_to_all || (dispatcher == "standard" && options.dp_size > 1);
  if (!travels || !options.nvfp4_dispatch.value_or(all_to_all)) return Payload::kAsGiven;
  if (mode == ActivationMode::kW4a4) return Payload::kNvfp4;
  if (mode == ActivationMode::kW4a4Dynamic) return Payload::kNvfp4Dynamic;
  return Payload::kAsGiven;
}

// The wire is bf16 or fp32; an fp16 output keeps its three more bits on an fp32 wire.
DType choose_wire(const MoeSpec& spec, const MoeOptions& options) {
  const DType by_output = spec.y_dtype == DType::kBf16 ? DType::kBf16 : DType::kF32;
  return options.combine_dtype.value_or(by_output);
}

DispatchPlan dispatch_request(const MoeSpec& spec,
                              const MoeOptions& options,
                              const RegistryChoice& choice,
                              const ExpertShard& shard,
                              const Device& device,
                              int rank) {
  DispatchPlan request;
  request.device = device;
  request.dispatcher = dispatcher_name(choice.transport, options);
  request.spec = spec;
  request.mode = choice.mode;
  request.shard = shard;
  request.rank = rank;
  request.tp_size = options.tp_size;
  request.ep_size = options.ep_size;
  request.dp_size = options.dp_size;
  request.combine_mode = options.combine_mode;
  request.combine_dtype = choose_wire(spec, options);
  request.payload = choose_payload(request.dispatcher, options, choice.mode);
  request.max_tokens_per_rank = options.capacity_tokens;
  return request;
}

ExpertPlan expert_request(const MoeOptions& options,
                          const DeviceLimits& limits,
                          const DispatchPlan& dispatch,
                          std::string_view backend) {
  ExpertPlan request;
  request.backend = backend;
  request.spec = dispatch.spec;
  request.mode = dispatch.mode;
  request.shard = dispatch.shard;
  request.limits = limits;
  request.fast_activation_math = options.fast_activation_math;
  request.exact_float32 = options.exact_float32;
  request.autotune = options.autotune;
  request.capacity_tokens = dispatch.capacity_tokens;
  request.max_routes = dispatch.max_routes;
  return request;
}

// The dispatcher knows how many rows arrive, the backend which type leaves: so the dispatcher is
// asked before and after it.
Status plan_both(const MoeOptions& options,
                 const DeviceLimits& limits,
                 std::string_view backend_name,
                 DispatchPlan request,
                 MoePlan& plan) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto backend, find_backend(backend_name));
  HALFBYTE_ASSIGN_OR_RETURN(const auto dispatcher,
                            make_dispatcher(request.dispatcher, nullptr, request.device.kind));
  HALFBYTE_RETURN_IF_ERROR(dispatcher->can_run(request));
  HALFBYTE_ASSIGN_OR_RETURN(plan.dispatch, dispatcher->plan(request));
  HALFBYTE_ASSIGN_OR_RETURN(
      plan.experts, backend->plan(expert_request(options, limits, plan.dispatch, backend_name)));
  plan.experts.autotune = plan.experts.autotune && !backend->list_tactics(plan.experts).empty();
  request.row_dtype = plan.experts.row_dtype;
  HALFBYTE_ASSIGN_OR_RETURN(plan.dispatch, dispatcher->plan(std::move(request)));
  return {};
}

void lay_out_workspace(MoePlan& plan) {
  const auto output_bytes =
      static_cast<std::size_t>(plan.dispatch.max_routes * plan.experts.spec.hidden_size *
                               dtype_bytes(plan.experts.row_dtype));
  plan.dispatch_workspace_offset =
      plan.workspace.add("dispatch", plan.dispatch.workspace.total_bytes(), kPartAlignment);
  plan.expert_workspace_offset =
      plan.workspace.add("experts", plan.experts.workspace.total_bytes(), kPartAlignment);
  if (plan.dispatch.device.kind == DeviceKind::kHost) {
    // Under the standard scheme one rank may hold all tokens of a forward.
    const std::int64_t tokens = plan.dispatch.dispatcher == "all_to_all"
                                    ? plan.dispatch.max_tokens_per_rank
                                    : plan.dispatch.capacity_tokens;
    const auto ids = static_cast<std::size_t>(tokens * plan.experts.spec.top_k);
    plan.valid_idx_offset =
        plan.workspace.add("valid_idx", ids * sizeof(std::int32_t), kPartAlignment);
  }
  plan.output_offset = plan.workspace.add("expert_output", output_bytes, kPartAlignment);
}

void announce(const std::vector<std::string>& log, NoticeSink& notices) {
  for (const std::string& line : log)
    notices.notice("registry: " + line, line);
}

}  // namespace

Result<MoePlan> make_moe_plan(const MoeSpec& spec,
                              const MoeOptions& options,
                              const DeviceLimits& limits,
                              int num_ranks,
                              int rank,
                              NoticeSink& notices) {
  HALFBYTE_RETURN_IF_ERROR(check_spec(spec));
  HALFBYTE_RETURN_IF_ERROR(check_capacity_option(options.capacity_tokens));
  HALFBYTE_ASSIGN_OR_RETURN(MoeOptions resolved,
                            resolve_aliases(options, limits.compute_capability, notices));
  HALFBYTE_ASSIGN_OR_RETURN(RegistryChoice choice,
                            choose_entry(default_registry(), spec, resolved, limits, num_ranks));
  announce(choice.log, notices);
  if (resolved.tp_size == 0 && resolved.ep_size == 0) resolved.tp_size = num_ranks;
  HALFBYTE_ASSIGN_OR_RETURN(
      resolved, resolve_options(spec, std::move(resolved), notices, limits.compute_capability));
  HALFBYTE_RETURN_IF_ERROR(check_ranks(resolved, num_ranks, rank));
  HALFBYTE_RETURN_IF_ERROR(check_exchange(resolved, choice.mode));
  HALFBYTE_ASSIGN_OR_RETURN(const ExpertShard shard,
                            shard_experts(spec, resolved.tp_size, resolved.ep_size, rank));

  MoePlan plan;
  plan.transport = choice.transport;
  plan.log = std::move(choice.log);
  HALFBYTE_RETURN_IF_ERROR(
      plan_both(resolved, limits, choice.backend,
                dispatch_request(spec, resolved, choice, shard, limits.device, rank), plan));
  lay_out_workspace(plan);
  return plan;
}

}  // namespace halfbyte
