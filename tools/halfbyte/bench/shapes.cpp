// SPDX-License-Identifier: Apache-2.0
#include "bench/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shapes_json.h"

namespace halfbyte::tool {
namespace {

std::vector<LayerShape> parse_shapes() {
  std::vector<LayerShape> shapes;
  const auto json = nlohmann::json::parse(kShapesJson);  // by name
  for (const auto& [name, fields] : json.items()) {
    LayerShape shape;
    shape.name = name;
    shape.hidden_size = fields.at("hidden_size");
    shape.intermediate_size = fields.at("intermediate_size");
    shape.num_experts = fields.at("num_experts");
    shape.num_local_experts = fields.value("num_local_experts", shape.num_experts);
    shape.top_k = fields.at("top_k");
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace

const std::vector<LayerShape>& layer_shapes() {
  static const std::vector<LayerShape> shapes = parse_shapes();
  return shapes;
}

const LayerShape* find_layer_shape(const std::string& name) {
  const auto& shapes = layer_shapes();
  const auto found = std::find_if(shapes.begin(), shapes.end(),
                                  [&](const LayerShape& shape) { return shape.name == name; });
  return found == shapes.end() ? nullptr : &*found;
}

std::string layer_shape_names() {
  std::vector<std::string> names;
  for (const LayerShape& shape : layer_shapes())
    names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

LayerShape with_experts(LayerShape shape, std::int64_t num_experts) {
  shape.name = fmt::format("{} with {} experts", shape.name, num_experts);
  shape.num_experts = num_experts;
  shape.num_local_experts = num_experts;
  return shape;
}

}  // namespace halfbyte::tool
