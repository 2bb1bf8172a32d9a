// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/no_throw.h"
#include "moe/device_limits.h"
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
  impl->cache_directory = options.cache_directory;
  HALFBYTE_ASSIGN_OR_RETURN(const MoeOptions named, name_transport(options, transport));
  auto limits = read_device_limits(options.device, options.num_threads);
  if (!limits.ok()) return limits.take_status().with_context(device_name(options.device));
  HALFBYTE_ASSIGN_OR_RETURN(
      impl->plan, make_moe_plan(spec, named, limits.value(), num_ranks, rank, *impl->notices));
  HALFBYTE_RETURN_IF_ERROR(impl->resolve_input_scales(input_scales));
  HALFBYTE_ASSIGN_OR_RETURN(impl->backend, find_backend(impl->plan.experts.backend));
  HALFBYTE_ASSIGN_OR_RETURN(impl->dispatcher, make_dispatcher(impl->plan.dispatch.dispatcher,
                                                              transport, impl->device().kind));
  impl->workspace = options.workspace ? options.workspace : make_moe_workspace();
  HALFBYTE_RETURN_IF_ERROR(impl->on_device([&impl] { return impl->allocate(); }));
  return impl;
}

Status MoeLayer::Impl::allocate() {
  HALFBYTE_ASSIGN_OR_RETURN(prepared, backend->allocate(plan.experts));
  HALFBYTE_RETURN_IF_ERROR(workspace->reserve(plan.workspace.total_bytes(), device()));
  const auto num_local = static_cast<std::size_t>(plan.experts.shard.num_local_experts);
  loaded.assign(num_local, 0);
  scales.gate_global_scale.assign(num_local, 1.0F);
  scales.up_global_scale.assign(num_local, 1.0F);
  scales.down_global_scale.assign(num_local, 1.0F);
  bucket_offset.assign(num_local + 1, 0);
  bucket_count.assign(num_local, 0);
  counters = std::make_unique<LayerCounters>(spec.num_experts);
  return {};
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

Status MoeLayer::set_stream(void* cuda_stream) {
  if (impl_->on_host()) {
    return {StatusCode::kInvalidArgument,
            "the layer lives on the host and takes no stream: see MoeOptions::device"};
  }
  if (impl_->in_flight) {
    return {StatusCode::kInvalidArgument,
            "a step is in flight on the present stream: call finish() first"};
  }
  impl_->stream = device::Stream::borrow(static_cast<CUstream_st*>(cuda_stream));
  return {};
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
  if (logits.device.kind != DeviceKind::kHost)
    return impl_->route_on_device(logits, bias, topk_idx, topk_weights);
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t num_unroutable,
                            halfbyte::route(impl_->spec.router, logits, bias, impl_->spec.top_k,
                                            true, topk_idx, topk_weights));
  impl_->counters->unroutable_rows.add(num_unroutable);
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

MoeCounters MoeLayer::counters() const {
  return impl_->counters->read();
}

}  // namespace halfbyte
