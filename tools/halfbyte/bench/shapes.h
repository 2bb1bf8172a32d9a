// SPDX-License-Identifier: Apache-2.0
//
// MoE layers of real models, by name: benchmarks/shapes.json, compiled in.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SHAPES_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace halfbyte::tool {

struct LayerShape {
  std::string name;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_experts = 0;        // that tokens choose from
  std::int64_t num_local_experts = 0;  // that this rank holds
  std::int64_t top_k = 0;

  /// NVFP4 bytes of one expert: a code of 4 bits a weight, and a scale of 8 bits for 16 of them.
  std::int64_t expert_bytes() const { return 3 * hidden_size * intermediate_size * 9 / 16; }
  std::int64_t layer_bytes() const { return num_local_experts * expert_bytes(); }
  /// Multiplications and additions of one route.
  std::int64_t route_operations() const { return 2 * 3 * hidden_size * intermediate_size; }
};

/// Every shape, in the order of their names.
const std::vector<LayerShape>& layer_shapes();
/// The shape of this name, or null.
const LayerShape* find_layer_shape(const std::string& name);
/// "deepseek-v3-ep1, deepseek-v3-ep8, ...".
std::string layer_shape_names();
/// The same layer with `num_experts` experts, all held here; its name says so.
LayerShape with_experts(LayerShape shape, std::int64_t num_experts);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SHAPES_H_
