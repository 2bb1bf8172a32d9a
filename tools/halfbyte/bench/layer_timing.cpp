// SPDX-License-Identifier: Apache-2.0
#include "bench/layer_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/memory.h"
#include "bench/statistics.h"
#include "bench/synthetic_layer.h"
#include "moe/rotating_routing.h"

namespace halfbyte::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kCopiesOfCache = 3;
constexpr int kSlices = 6;  // the machine is measured around each
constexpr std::size_t kMinSliceSteps = 1;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double gigabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

// What to do when there are `spare` bytes for experts.
std::string memory_remedy(const LayerShape& shape, std::int64_t step_bytes, std::int64_t spare) {
  if (spare < shape.top_k * shape.expert_bytes())
    return "free memory, or take fewer --tokens or a smaller shape";
  return fmt::format("use --experts {} or fewer{}", spare / shape.expert_bytes(),
                     step_bytes > shape.layer_bytes() ? ", or fewer --tokens" : "");
}

/// x and y.
std::int64_t row_bytes(const LayerShape& shape, std::int64_t num_tokens) {
  return 2 * num_tokens * shape.hidden_size * dtype_bytes(DType::kBf16);
}

/// The steps of one row, each on the next layer.
class Steps {
 public:
  Steps(const LayerShape& shape,
        const std::vector<std::unique_ptr<MoeLayer>>& layers,
        std::int64_t num_tokens)
      : layers_(layers),
        routing_({shape.num_experts, shape.num_local_experts, shape.top_k}, num_tokens),
        x_(make_synthetic_rows(num_tokens, shape.hidden_size)),
        y_(x_.size()),
        num_tokens_(num_tokens),
        hidden_(shape.hidden_size) {
    work_.weight_bytes = routing_.num_touched() * shape.expert_bytes();
    work_.operations = routing_.num_routes() * shape.route_operations();
  }

  /// Seconds of one step.
  Result<double> run() {
    const auto num_layers = static_cast<std::int64_t>(layers_.size());
    MoeLayer& layer = *layers_[static_cast<std::size_t>(step_ % num_layers)];
    const Routing routing = routing_.round(step_ / num_layers);
    ++step_;
    const Clock::time_point start = Clock::now();
    HALFBYTE_RETURN_IF_ERROR(layer.run({x_.data(), DType::kBf16, num_tokens_, hidden_}, routing, {},
                                       {y_.data(), DType::kBf16, num_tokens_, hidden_}));
    return seconds_since(start);
  }

  const StepWork& work() const { return work_; }

 private:
  const std::vector<std::unique_ptr<MoeLayer>>& layers_;
  RotatingRouting routing_;
  std::vector<std::uint16_t> x_, y_;  // bf16
  std::int64_t num_tokens_, hidden_;
  std::int64_t step_ = 0;
  StepWork work_;
};

Status time_slice(Steps& steps, double slice_seconds, std::vector<double>& milliseconds) {
  const std::size_t least = milliseconds.size() + kMinSliceSteps;
  const Clock::time_point start = Clock::now();
  while (milliseconds.size() < least || seconds_since(start) < slice_seconds) {
    HALFBYTE_ASSIGN_OR_RETURN(const double seconds, steps.run());
    milliseconds.push_back(seconds * 1e3);
  }
  return {};
}

}  // namespace

LayerSpeed make_layer_speed(double ms, const StepWork& work, const Ceilings& ceilings) {
  const auto bytes = static_cast<double>(work.weight_bytes);
  const auto operations = static_cast<double>(work.operations);
  LayerSpeed speed;
  speed.ms = ms;
  speed.gbps = bytes * 1e-6 / ms;
  speed.gops = operations * 1e-6 / ms;
  const bool memory = bytes / ceilings.read_gbps >= operations / ceilings.multiply_gops;
  speed.limited_by = memory ? "memory" : "compute";
  speed.limit = memory ? ceilings.read_gbps : ceilings.multiply_gops;
  speed.percent_of_limit = 100.0 * (memory ? speed.gbps : speed.gops) / speed.limit;
  return speed;
}

std::int64_t num_rotating_layers(const LayerShape& shape, std::int64_t cache_bytes) {
  const std::int64_t bytes = kCopiesOfCache * cache_bytes;
  return std::max<std::int64_t>(1, (bytes + shape.layer_bytes() - 1) / shape.layer_bytes());
}

Status check_layer_memory(const LayerShape& shape,
                          std::int64_t cache_bytes,
                          std::int64_t step_bytes,
                          std::int64_t available_bytes) {
  const std::int64_t num_experts =
      num_rotating_layers(shape, cache_bytes) * shape.num_local_experts;
  const std::int64_t other_bytes = kCopiesOfCache * cache_bytes + step_bytes;
  const std::int64_t wanted = num_experts * shape.expert_bytes() + other_bytes;
  if (available_bytes == 0 || wanted <= available_bytes) return {};
  return {StatusCode::kOutOfMemory,
          fmt::format("{}: {} bytes wanted ({:.1f} GB: {} experts of {:.1f} MB, {:.1f} GB for a "
                      "step, {:.1f} GB to measure the memory with), {} bytes available ({:.1f} "
                      "GB): {}",
                      shape.name, wanted, gigabytes(wanted), num_experts,
                      gigabytes(shape.expert_bytes()) * 1e3, gigabytes(step_bytes),
                      gigabytes(kCopiesOfCache * cache_bytes), available_bytes,
                      gigabytes(available_bytes),
                      memory_remedy(shape, step_bytes, available_bytes - other_bytes))};
}

Result<std::unique_ptr<LayerBench>> LayerBench::create(const LayerBenchOptions& options) {
  const std::int64_t cache_bytes = options.cache_bytes;
  MoeOptions moe = options.moe;
  moe.capacity_tokens = *std::max_element(options.num_tokens.begin(), options.num_tokens.end());
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t workspace_bytes,
                            synthetic_workspace_bytes(options.shape, moe));
  HALFBYTE_RETURN_IF_ERROR(check_layer_memory(
      options.shape, cache_bytes, workspace_bytes + row_bytes(options.shape, moe.capacity_tokens),
      available_memory_bytes()));
  std::unique_ptr<LayerBench> bench(new LayerBench());
  bench->shape_ = options.shape;
  bench->slice_seconds_ = options.slice_seconds;
  HALFBYTE_ASSIGN_OR_RETURN(
      bench->layers_,
      make_synthetic_layers(options.shape, moe, num_rotating_layers(options.shape, cache_bytes)));
  // The reference is plain loops on the caller's thread.
  if (bench->layer().backend_name() != "reference")
    bench->num_threads_ = moe.num_threads > 0 ? moe.num_threads : usable_cores();
  HALFBYTE_ASSIGN_OR_RETURN(
      bench->probe_, CeilingProbe::create(kCopiesOfCache * cache_bytes, bench->num_threads_));
  return bench;
}

Result<LayerSpeed> LayerBench::time(std::int64_t num_tokens) {
  Steps steps(shape_, layers_, num_tokens);
  std::vector<double> milliseconds;
  HALFBYTE_RETURN_IF_ERROR(time_slice(steps, slice_seconds_, milliseconds));  // warms up
  milliseconds.clear();
  probe_->measure();
  for (int slice = 0; slice < kSlices; ++slice) {
    HALFBYTE_RETURN_IF_ERROR(time_slice(steps, slice_seconds_, milliseconds));
    probe_->measure();
  }
  return make_layer_speed(median(std::move(milliseconds)), steps.work(), probe_->ceilings());
}

}  // namespace halfbyte::tool
