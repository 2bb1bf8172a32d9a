// SPDX-License-Identifier: Apache-2.0
//
// How long a layer's steps take on a CUDA device, beside what the device could do at best.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_LAYER_TIMING_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_LAYER_TIMING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/layer_timing.h"
#include "device/nvml.h"
#include "device/stream.h"

namespace halfbyte::tool {

/// Of a step: grouping, both GEMMs, combine.
struct DeviceLayerSpeed : LayerSpeed {
  double fastest_ms = 0.0;
  double slowest_ms = 0.0;
  device::PowerState power;     // under sustained replay
  double with_router_ms = 0.0;  // with MoeLayer::route of as many tokens before each step
};

/// Steps that together touch at least three times the cache; more of small ones, so that a graph's
/// start counts little.
int num_graph_steps(std::int64_t step_bytes, std::int64_t cache_bytes);

/// Layers with random weights on a CUDA device, whose steps are replayed from graphs.
class DeviceLayerBench {
 public:
  /// `options.moe.device` says where; options.cache_bytes does not count, the device's does.
  /// kUnsupported: no such device, in the words of `halfbyte inspect backends`; kOutOfMemory; the
  /// errors of MoeLayer::create.
  static Result<std::unique_ptr<DeviceLayerBench>> create(const LayerBenchOptions& options);

  /// Each step of the graph routes other tokens' choices to other experts.
  Result<DeviceLayerSpeed> time(std::int64_t num_tokens);

  const MoeLayer& layer() const { return *layers_.front(); }
  /// "sm_90".
  std::string isa() const { return "sm_" + std::to_string(compute_capability_); }
  /// "NVIDIA H200, 132 multiprocessors, read stream 4650 GB/s, bf16 product 775 TFLOP/s".
  std::string describe() const;

 private:
  DeviceLayerBench() : stream_(device::Stream::borrow(nullptr)) {}
  Status measure_ceilings();

  LayerShape shape_;
  Device device_;
  std::string device_name_;
  int compute_capability_ = 0;
  int num_multiprocessors_ = 0;
  std::int64_t cache_bytes_ = 0;
  device::Stream stream_;
  Ceilings ceilings_;
  std::string no_product_;  // why there is no ceiling of multiplying
  std::vector<std::unique_ptr<MoeLayer>> layers_;
};

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_LAYER_TIMING_H_
