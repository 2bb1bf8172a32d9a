// SPDX-License-Identifier: Apache-2.0
//
// How long MoeLayer::run takes, beside what the machine could do at best.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_TIMING_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_TIMING_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/cache_size.h"
#include "bench/ceilings.h"
#include "bench/shapes.h"
#include "halfbyte/moe.h"

namespace halfbyte::tool {

/// What one step moves and computes at least, whoever runs it.
struct StepWork {
  std::int64_t weight_bytes = 0;  // of the experts that have a route, as NVFP4
  std::int64_t operations = 0;    // of all routes
};

/// A measured time against the larger of two floors: reading the weights, and multiplying.
struct LayerSpeed {
  double ms = 0.0;  // median of the steps
  double gbps = 0.0;
  double gops = 0.0;
  std::string_view limited_by;  // "memory" or "compute"
  double limit = 0.0;           // GB/s or GOP/s of the machine
  double percent_of_limit = 0.0;
};
LayerSpeed make_layer_speed(double ms, const StepWork& work, const Ceilings& ceilings);

/// Layers whose experts together exceed three level 3 caches, so that rotating over them reads
/// memory.
std::int64_t num_rotating_layers(const LayerShape& shape, std::int64_t cache_bytes);

struct LayerBenchOptions {
  LayerShape shape;
  std::vector<std::int64_t> num_tokens;             // one row each
  MoeOptions moe;                                   // capacity_tokens follows from num_tokens
  std::int64_t cache_bytes = level3_cache_bytes();  // steps rotate over three times as many
  double slice_seconds = 0.2;                       // of each of six slices of steps
};

/// Ok, or kOutOfMemory with the bytes wanted, the bytes available (0: unknown), and the remedy.
/// `step_bytes` are rows and scratch memory of the largest step.
Status check_layer_memory(const LayerShape& shape,
                          std::int64_t cache_bytes,
                          std::int64_t step_bytes,
                          std::int64_t available_bytes);

/// Layers with random weights that are run with random routings.
class LayerBench {
 public:
  /// kOutOfMemory, and the errors of MoeLayer::create.
  static Result<std::unique_ptr<LayerBench>> create(const LayerBenchOptions& options);

  /// One step is one layer on `num_tokens` rows; each step reads other experts. Ceilings are
  /// measured before, between and after the steps.
  Result<LayerSpeed> time(std::int64_t num_tokens);

  const MoeLayer& layer() const { return *layers_.front(); }
  int num_threads() const { return num_threads_; }

 private:
  LayerBench() = default;

  LayerShape shape_;
  double slice_seconds_ = 0.0;
  std::vector<std::unique_ptr<MoeLayer>> layers_;
  std::unique_ptr<CeilingProbe> probe_;
  int num_threads_ = 1;
};

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_LAYER_TIMING_H_
