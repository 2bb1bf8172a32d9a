// SPDX-License-Identifier: Apache-2.0
#include "bench/device_layer_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "bench/device_timing.h"
#include "bench/synthetic_layer.h"
#include "device/buffer.h"
#include "device/current_device.h"
#include "device/properties.h"
#include "moe/registry.h"
#include "moe/rotating_routing.h"

namespace halfbyte::tool {
namespace {

using device::DeviceBuffer;

constexpr std::int64_t kCopiesOfCache = 3;
constexpr std::int64_t kReadBytes = std::int64_t{4} << 30;
constexpr std::int64_t kFewestSteps = 4;
constexpr std::int64_t kMostSteps = 64;

template <typename T>
Result<DeviceBuffer> upload(std::span<const T> values, const device::Stream& stream) {
  HALFBYTE_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::allocate(values.size_bytes()));
  HALFBYTE_RETURN_IF_ERROR(buffer.upload(std::as_bytes(values), 0, stream));
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return buffer;
}

/// What the steps of one graph read and write.
class GraphInputs {
 public:
  GraphInputs(const LayerShape& shape, const Device& device, std::int64_t num_tokens)
      : routing_({shape.num_experts, shape.num_local_experts, shape.top_k}, num_tokens),
        device_(device),
        num_tokens_(num_tokens),
        num_experts_(shape.num_experts),
        hidden_(shape.hidden_size) {
    work_.weight_bytes = routing_.num_touched() * shape.expert_bytes();
    work_.operations = routing_.num_routes() * shape.route_operations();
  }

  Status place(int num_steps, std::int64_t num_layers, const device::Stream& stream);
  /// Of random logits, for nobody: the steps' own choices rotate.
  Status route(MoeLayer& layer) const;
  Status enqueue(MoeLayer& layer, int step) const;
  const StepWork& work() const { return work_; }

 private:
  RotatingRouting routing_;
  Device device_;
  std::int64_t num_tokens_, num_experts_, hidden_;
  StepWork work_;
  DeviceBuffer x_, y_, weights_, logits_, routed_ids_, routed_weights_;
  std::vector<DeviceBuffer> ids_;  // of each step
};

std::vector<float> random_logits(std::int64_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<std::size_t>(count));
  std::generate(logits.begin(), logits.end(), [&] { return normal(random); });
  return logits;
}

// Each layer sees the next round once all have seen the one before.
Status GraphInputs::place(int num_steps, std::int64_t num_layers, const device::Stream& stream) {
  const std::vector<std::uint16_t> x = make_synthetic_rows(num_tokens_, hidden_);
  HALFBYTE_ASSIGN_OR_RETURN(x_, upload(std::span(x), stream));
  HALFBYTE_ASSIGN_OR_RETURN(y_, DeviceBuffer::allocate(x_.size()));
  HALFBYTE_ASSIGN_OR_RETURN(weights_, upload(routing_.round(0).topk_weights, stream));
  for (int step = 0; step < num_steps; ++step) {
    HALFBYTE_ASSIGN_OR_RETURN(DeviceBuffer ids,
                              upload(routing_.round(step / num_layers).topk_idx, stream));
    ids_.push_back(std::move(ids));
  }
  const std::vector<float> logits = random_logits(num_tokens_ * num_experts_);
  HALFBYTE_ASSIGN_OR_RETURN(logits_, upload(std::span(logits), stream));
  HALFBYTE_ASSIGN_OR_RETURN(routed_ids_, DeviceBuffer::allocate(weights_.size()));
  HALFBYTE_ASSIGN_OR_RETURN(routed_weights_, DeviceBuffer::allocate(weights_.size()));
  return {};
}

Status GraphInputs::route(MoeLayer& layer) const {
  const std::size_t slots = weights_.size() / sizeof(float);
  return layer.route({logits_.data(), DType::kF32, num_tokens_, num_experts_, device_}, {},
                     {routed_ids_.as<std::int32_t>(), slots}, {routed_weights_.as<float>(), slots});
}

Status GraphInputs::enqueue(MoeLayer& layer, int step) const {
  const DeviceBuffer& ids = ids_[static_cast<std::size_t>(step)];
  const std::size_t slots = ids.size() / sizeof(std::int32_t);
  Routing routing;
  routing.topk_idx = {ids.as<std::int32_t>(), slots};
  routing.topk_weights = {weights_.as<float>(), slots};
  return layer.run({x_.data(), DType::kBf16, num_tokens_, hidden_, device_}, routing, {},
                   {y_.data(), DType::kBf16, num_tokens_, hidden_, device_});
}

}  // namespace

int num_graph_steps(std::int64_t step_bytes, std::int64_t cache_bytes) {
  const std::int64_t bytes = kCopiesOfCache * cache_bytes;
  const std::int64_t steps = (bytes + step_bytes - 1) / step_bytes;
  return static_cast<int>(std::clamp(2 * steps, kFewestSteps, kMostSteps));
}

Result<std::unique_ptr<DeviceLayerBench>> DeviceLayerBench::create(
    const LayerBenchOptions& options) {
  MoeOptions moe = options.moe;
  auto properties = device::read_properties(moe.device.index);
  if (!properties.ok()) return properties.take_status().with_context(moe.runner_backend);
  const device::CurrentDevice current(moe.device.index);
  HALFBYTE_RETURN_IF_ERROR(current.status());
  std::unique_ptr<DeviceLayerBench> bench(new DeviceLayerBench());
  bench->shape_ = options.shape;
  bench->device_ = moe.device;
  bench->device_name_ = properties->name;
  bench->compute_capability_ = properties->compute_capability;
  bench->num_multiprocessors_ = properties->num_multiprocessors;
  bench->cache_bytes_ = properties->l2_bytes;
  HALFBYTE_ASSIGN_OR_RETURN(bench->stream_, device::Stream::create());
  HALFBYTE_RETURN_IF_ERROR(bench->measure_ceilings());

  // Tokens choose from all experts, so all are there: a plan then expects of each what it gets.
  LayerShape whole = options.shape;
  whole.num_local_experts = whole.num_experts;
  moe.capacity_tokens = *std::max_element(options.num_tokens.begin(), options.num_tokens.end());
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t workspace_bytes,
                            synthetic_workspace_bytes(whole, moe));
  const std::int64_t row_bytes = 4 * moe.capacity_tokens * whole.hidden_size;
  HALFBYTE_RETURN_IF_ERROR(check_layer_memory(
      whole, bench->cache_bytes_, workspace_bytes + row_bytes, properties->total_bytes));
  HALFBYTE_ASSIGN_OR_RETURN(
      bench->layers_,
      make_synthetic_layers(whole, moe, num_rotating_layers(options.shape, bench->cache_bytes_)));
  for (const std::unique_ptr<MoeLayer>& layer : bench->layers_)
    HALFBYTE_RETURN_IF_ERROR(layer->set_stream(bench->stream_.handle()));
  return bench;
}

Status DeviceLayerBench::measure_ceilings() {
  HALFBYTE_ASSIGN_OR_RETURN(const double read,
                            measure_read_bandwidth(stream_, device_.index, kReadBytes));
  ceilings_.read_gbps = read * 1e-9;
  const auto product = measure_bf16_product(stream_, device_.index);
  if (product.ok()) {
    ceilings_.multiply_gops = product.value() * 1e-9;
    return {};
  }
  if (product.status().code() != StatusCode::kUnsupported) return product.status().clone();
  no_product_ = product.status().message();
  ceilings_.multiply_gops = std::numeric_limits<double>::infinity();
  return {};
}

std::string DeviceLayerBench::describe() const {
  const std::string product =
      no_product_.empty()
          ? fmt::format("bf16 product of 8192 x 8192 (cuBLAS) {:.0f} TFLOP/s",
                        ceilings_.multiply_gops * 1e-3)
          : fmt::format("no ceiling of multiplying, memory is compared with alone: {}",
                        no_product_);
  return fmt::format("{}, {} multiprocessors, driver {}; read stream {:.0f} GB/s, {}", device_name_,
                     num_multiprocessors_, device::driver_version(), ceilings_.read_gbps, product);
}

Result<DeviceLayerSpeed> DeviceLayerBench::time(std::int64_t num_tokens) {
  const device::CurrentDevice current(device_.index);
  HALFBYTE_RETURN_IF_ERROR(current.status());
  GraphInputs inputs(shape_, device_, num_tokens);
  const int num_steps = num_graph_steps(inputs.work().weight_bytes, cache_bytes_);
  HALFBYTE_RETURN_IF_ERROR(inputs.place(num_steps, std::ssize(layers_), stream_));
  const auto layer_of = [&](int step) -> MoeLayer& {
    return *layers_[static_cast<std::size_t>(step) % layers_.size()];
  };
  const auto enqueue = [&](int step) { return inputs.enqueue(layer_of(step), step); };
  for (int step = 0; step < num_steps; ++step)  // a layer's first step cannot be captured
    HALFBYTE_RETURN_IF_ERROR(enqueue(step));
  HALFBYTE_RETURN_IF_ERROR(stream_.synchronize());
  HALFBYTE_ASSIGN_OR_RETURN(const GraphTiming timing,
                            time_graph(stream_, device_.index, num_steps, enqueue));
  DeviceLayerSpeed speed;
  static_cast<LayerSpeed&>(speed) =
      make_layer_speed(timing.median_us * 1e-3, inputs.work(), ceilings_);
  speed.fastest_ms = timing.fastest_us * 1e-3;
  speed.slowest_ms = timing.slowest_us * 1e-3;
  speed.power = timing.power;
  HALFBYTE_ASSIGN_OR_RETURN(const GraphTiming with_router,
                            time_graph(stream_, device_.index, num_steps, [&](int step) -> Status {
                              HALFBYTE_RETURN_IF_ERROR(inputs.route(layer_of(step)));
                              return enqueue(step);
                            }));
  speed.with_router_ms = with_router.median_us * 1e-3;
  return speed;
}

}  // namespace halfbyte::tool
