// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/no_throw.h"
#include "base/thread_pool.h"
#include "moe/layer_impl.h"
#include "moe/registry.h"
#include "moe/router.h"
#include "moe/spec.h"

namespace halfbyte {
namespace {

// The transport that is there is the one that is meant.
Result<MoeOptions> name_transport(MoeOptions options, const Transport* transport) {
  if (transport == nullptr) {
    if (options.transport == "auto" || options.transport == "local") return options;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--moe-transport {} connects ranks, but no transport was given",
                              options.transport));
  }
  const std::string name(transport->name());
  if (options.transport == "auto" && transport->num_ranks() > 1) options.transport = name;
  if (options.transport == "auto" || options.transport == "local" || options.transport == name) {
    return options;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--moe-transport is {}, the transport that was given is {}",
                            options.transport, name));
}

DeviceLimits host_limits(const MoeOptions& options) {
  DeviceLimits limits;
  limits.num_threads = options.num_threads > 0 ? options.num_threads : usable_cores();
  return limits;
}

}  // namespace

std::shared_ptr<NoticeSink> make_notice_sink(std::function<void(std::string_view)> line) {
  return std::make_shared<NoticeSink>(std::move(line));
}

std::shared_ptr<MoeWorkspace> make_moe_workspace() {
  return std::make_shared<MoeWorkspace>();
}

MoeLayer::MoeLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MoeLayer::~MoeLayer() = default;

Result<std::unique_ptr<MoeLayer::Impl>> MoeLayer::Impl::make(const MoeSpec& spec,
                                                             const MoeOptions& options,
                                                             const ExpertInputScales& input_scales,
                                                             Transport* transport) {
  const int rank = transport == nullptr ? 0 : transport->rank();
  const int num_ranks = transport == nullptr ? 1 : transport->num_ranks();
  auto impl = std::make_unique<Impl>();
  impl->spec = spec;
  impl->transport = transport;
  impl->notices = rank == 0 && options.notices ? options.notices : std::make_shared<NoticeSink>();
  HALFBYTE_ASSIGN_OR_RETURN(const MoeOptions named, name_transport(options, transport));
  HALFBYTE_ASSIGN_OR_RETURN(impl->plan, make_moe_plan(spec, named, host_limits(options), num_ranks,
                                                      rank, *impl->notices));
  HALFBYTE_RETURN_IF_ERROR(impl->resolve_input_scales(input_scales));
  HALFBYTE_ASSIGN_OR_RETURN(impl->backend, find_backend(impl->plan.experts.backend));
  HALFBYTE_ASSIGN_OR_RETURN(impl->dispatcher,
                            make_dispatcher(impl->plan.dispatch.dispatcher, transport));
  HALFBYTE_ASSIGN_OR_RETURN(impl->prepared, impl->backend->allocate(impl->plan.experts));
  impl->workspace = options.workspace ? options.workspace : make_moe_workspace();
  HALFBYTE_RETURN_IF_ERROR(impl->workspace->reserve(impl->plan.workspace.total_bytes()));

  const auto num_local = static_cast<std::size_t>(impl->plan.experts.shard.num_local_experts);
  impl->loaded.assign(num_local, 0);
  impl->scales.gate_global_scale.assign(num_local, 1.0F);
  impl->scales.up_global_scale.assign(num_local, 1.0F);
  impl->scales.down_global_scale.assign(num_local, 1.0F);
  impl->bucket_offset.assign(num_local + 1, 0);
  impl->bucket_count.assign(num_local, 0);
  impl->counters.tokens_per_expert.assign(static_cast<std::size_t>(spec.num_experts), 0);
  return impl;
}

Result<std::unique_ptr<MoeLayer>> MoeLayer::create(const MoeSpec& spec,
                                                   const MoeOptions& options,
                                                   const ExpertInputScales& input_scales,
                                                   Transport* transport) {
  return no_throw([&]() -> Result<std::unique_ptr<MoeLayer>> {
    HALFBYTE_ASSIGN_OR_RETURN(auto impl, Impl::make(spec, options, input_scales, transport));
    return std::unique_ptr<MoeLayer>(new MoeLayer(std::move(impl)));
  });
}

std::int64_t MoeLayer::first_expert() const {
  return impl_->plan.experts.shard.first_expert;
}

std::int64_t MoeLayer::num_local_experts() const {
  return impl_->plan.experts.shard.num_local_experts;
}

Status MoeLayer::route(ConstMatrixView logits,
                       std::span<const float> bias,
                       std::span<std::int32_t> topk_idx,
                       std::span<float> topk_weights) {
  if (logits.cols != impl_->spec.num_experts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("router logits have {} columns, want one per expert, {}", logits.cols,
                        impl_->spec.num_experts)};
  }
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t num_unroutable,
                            halfbyte::route(impl_->spec.router, logits, bias, impl_->spec.top_k,
                                            true, topk_idx, topk_weights));
  impl_->counters.unroutable_rows += num_unroutable;
  return {};
}

std::string MoeLayer::describe_plan() const {
  return describe(impl_->plan);
}

std::size_t MoeLayer::workspace_bytes() const {
  return impl_->plan.workspace.total_bytes();
}

std::string_view MoeLayer::backend_name() const {
  return impl_->plan.experts.backend;
}

std::string_view MoeLayer::transport_name() const {
  return impl_->plan.transport;
}

ActivationMode MoeLayer::activation_mode() const {
  return impl_->plan.experts.mode;
}

const MoeCounters& MoeLayer::counters() const {
  return impl_->counters;
}

}  // namespace halfbyte
