// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>

#include "moe/device_limits.h"
#include "moe/plan.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

using Text = std::back_insert_iterator<std::string>;

std::string_view token_layout_name(TokenLayout layout) {
  switch (layout) {
    case TokenLayout::kTokenMajor:
      return "token major";
    case TokenLayout::kFlat:
      return "flat";
    case TokenLayout::kExpertMajor:
      return "expert major";
  }
  return "unknown";
}

void describe_layer(const MoeSpec& spec, Text out) {
  fmt::format_to(
      out,
      "layer: hidden_size {}, intermediate_size {}, {} experts ({}), top_k {}, {}, x {}, "
      "y {}\n",
      spec.hidden_size, spec.intermediate_size, spec.num_experts,
      weight_format_name(spec.expert_format), spec.top_k,
      activation_function_name(spec.activation.function), dtype_name(spec.x_dtype),
      dtype_name(spec.y_dtype));
}

void describe_placement(const DispatchPlan& plan, Text out) {
  const ExpertShard& shard = plan.shard;
  fmt::format_to(
      out, "placement: rank {} of tp {} ep {} dp {}: experts {} .. {}, columns {} .. {} of each\n",
      plan.rank, plan.tp_size, plan.ep_size, plan.dp_size, shard.first_expert,
      shard.first_expert + shard.num_local_experts, shard.intermediate_begin,
      shard.intermediate_begin + shard.intermediate_size);
}

void describe_device(const DeviceLimits& limits, Text out) {
  if (limits.device.kind == DeviceKind::kHost) return;
  fmt::format_to(out, "device: {}, compute capability {}.{}, {} multiprocessors\n",
                 device_name(limits.device), limits.compute_capability / 10,
                 limits.compute_capability % 10, limits.num_multiprocessors);
}

// What `kernels` follows: a table, or the backend's own choice until there is one.
void describe_tactics(const ExpertPlan& plan, Text out) {
  if (plan.tactics.empty() && plan.autotune) {
    fmt::format_to(out,
                   "tactics: the backend's own, until the weights are loaded: then measured\n");
  }
  for (const auto& [num_tokens, tactic] : plan.tactics)
    fmt::format_to(out, "tactics: up to {} tokens: {}\n", num_tokens, tactic);
}

void describe_experts(const ExpertPlan& plan, Text out) {
  fmt::format_to(out, "backend: {} in {}: x {}, h {}, rows {}, tokens {}\n", plan.backend,
                 activation_mode_name(plan.mode), plan.x_format, plan.h_format,
                 dtype_name(plan.row_dtype), token_layout_name(plan.token_layout));
  fmt::format_to(out, "activation math: {}{}\n", plan.activation_math,
                 plan.fast_activation_math && plan.activation_math == "portable"
                     ? " (fast was asked for; this backend has no other)"
                     : "");
  fmt::format_to(out, "weights: {}, {} bytes\n", plan.prepared_layout, plan.prepared_bytes);
  for (const std::string& kernel : plan.kernels)
    fmt::format_to(out, "kernels: {}\n", kernel);
  describe_tactics(plan, out);
}

void describe_dispatch(const DispatchPlan& plan, Text out) {
  fmt::format_to(out, "dispatcher: {}: payload {}, combine {} over {}, {} and {} bytes a token\n",
                 plan.dispatcher, payload_name(plan.payload),
                 plan.combine_mode == CombineMode::kOrdered ? "ordered" : "fast",
                 dtype_name(plan.combine_dtype), plan.dispatch_bytes_per_token,
                 plan.combine_bytes_per_token);
  fmt::format_to(out, "capacity: {} tokens a rank, {} tokens entering the experts, {} routes\n",
                 plan.max_tokens_per_rank, plan.capacity_tokens, plan.max_routes);
}

void describe_part(std::string_view name,
                   std::size_t offset,
                   const WorkspaceLayout& part,
                   Text out) {
  for (const WorkspaceLayout::Entry& entry : part.entries()) {
    fmt::format_to(out, "  {:>12} {:>12}  {}/{}\n", offset + entry.offset, entry.bytes, name,
                   entry.name);
  }
}

}  // namespace

std::string_view payload_name(Payload payload) {
  switch (payload) {
    case Payload::kAsGiven:
      return "as given";
    case Payload::kNvfp4:
      return "nvfp4";
    case Payload::kNvfp4Dynamic:
      return "nvfp4 + row scale";
  }
  return "unknown";
}

std::string describe(const MoePlan& plan) {
  std::string text;
  const Text out(text);
  describe_layer(plan.experts.spec, out);
  fmt::format_to(out, "transport: {}\n", plan.transport);
  describe_device(plan.experts.limits, out);
  describe_placement(plan.dispatch, out);
  describe_experts(plan.experts, out);
  describe_dispatch(plan.dispatch, out);
  fmt::format_to(out, "workspace: {} bytes (offset, bytes, name)\n", plan.workspace.total_bytes());
  describe_part("dispatch", plan.dispatch_workspace_offset, plan.dispatch.workspace, out);
  describe_part("experts", plan.expert_workspace_offset, plan.experts.workspace, out);
  for (const WorkspaceLayout::Entry& entry : plan.workspace.entries()) {
    if (entry.name == "dispatch" || entry.name == "experts") continue;  // in parts, above
    fmt::format_to(out, "  {:>12} {:>12}  {}\n", entry.offset, entry.bytes, entry.name);
  }
  return text;
}

}  // namespace halfbyte
