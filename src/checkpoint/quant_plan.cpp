// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quant_plan.h"

#include <algorithm>

#include "checkpoint/module_path.h"
#include "checkpoint/module_pattern.h"

namespace halfbyte {
namespace {

/// The algorithm of the longest entry that is `path` or one of its containers; null: none.
const std::string* find_layer_algorithm(const QuantPlan& plan, std::string_view path) {
  for (; !path.empty(); path = parent_path(path)) {
    const auto it =
        std::lower_bound(plan.layers.begin(), plan.layers.end(), path,
                         [](const auto& entry, std::string_view key) { return entry.first < key; });
    if (it != plan.layers.end() && it->first == path) return &it->second;
  }
  return nullptr;
}

std::optional<bool> algorithm_quantizes_activations(std::string_view algorithm) {
  if (algorithm == "W4A16_NVFP4" || algorithm == "NVFP4A16") return false;
  if (algorithm == "NVFP4" || algorithm == "NVFP4_AWQ") return true;
  return std::nullopt;
}

bool targets_module(const QuantGroup& group, std::string_view module) {
  return std::any_of(group.targets.begin(), group.targets.end(),
                     [&](const auto& target) { return target->matches(module); });
}

}  // namespace

std::string_view QuantPlan::algorithm_of(std::string_view module) const {
  const std::string* own = find_layer_algorithm(*this, strip_prefix(module));
  return own != nullptr ? *own : algorithm;
}

bool QuantPlan::excludes_module(std::string_view module) const {
  return std::any_of(excludes.begin(), excludes.end(),
                     [&](const auto& e) { return e->matches(module); });
}

std::optional<bool> QuantPlan::declares_activation_quantization(std::string_view module) const {
  if (const std::string* own = find_layer_algorithm(*this, strip_prefix(module))) {
    if (const auto answer = algorithm_quantizes_activations(*own)) return answer;
  }
  for (const QuantGroup& group : groups) {
    if (is_compressed_tensors && targets_module(group, module)) return group.has_input_activations;
  }
  return algorithm_quantizes_activations(algorithm);
}

}  // namespace halfbyte
