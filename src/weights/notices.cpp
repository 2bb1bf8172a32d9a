// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoint/module_path.h"
#include "checkpoint/module_pattern.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

/// Gate and up with their own global scales are legal and exact here, and a surprise elsewhere.
void notice_gate_up_ratio(CheckpointWeights::Impl& impl) {
  std::int64_t num_pairs = 0, num_different = 0;
  float largest = 1.0F;
  for (const auto& [layer_idx, layer] : impl.layers) {
    if (!layer.gated) continue;
    for (const auto& scales : layer.global_scales) {
      ++num_pairs;
      if (scales[0] == scales[1]) continue;
      ++num_different;
      largest = std::max({largest, scales[0] / scales[1], scales[1] / scales[0]});
    }
  }
  if (num_different == 0) return;
  impl.notices->notice(
      "gate and up differ",
      fmt::format("gate and up have different global scales in {} of {} experts (largest "
                  "ratio {:.3g}): each half keeps its own",
                  num_different, num_pairs, largest));
}

/// One thing that a pattern may name, under the checkpoint's spelling.
struct NamedModule {
  std::string_view raw_path;
  LinearClass linear_class;
};

std::vector<NamedModule> quantized_modules(const CheckpointWeights::Impl& impl) {
  std::vector<NamedModule> modules;
  for (const auto& [path, kind] : impl.kinds) {
    if (kind.linear_class != LinearClass::kDense) {
      modules.push_back({impl.map.modules.at(path).raw_path, kind.linear_class});
    }
  }
  for (const auto& [layer_idx, layer] : impl.layers) {
    if (!layer.is_good || layer.tensors->is_stacked()) continue;
    for (const ExpertEntries& expert : layer.tensors->experts) {
      for (const Projection projection : kProjections) {
        const LinearClass linear_class = layer.kind(projection).linear_class;
        if (!layer.has(projection) || linear_class == LinearClass::kDense) continue;
        modules.push_back(
            {parent_path(expert[static_cast<std::size_t>(projection)].payload()->name),
             linear_class});
      }
    }
  }
  return modules;
}

void notice_excludes(CheckpointWeights::Impl& impl, const std::vector<NamedModule>& modules) {
  for (const auto& pattern : impl.config.quant.excludes) {
    std::int64_t count = 0;
    LinearClass found = LinearClass::kNvfp4;
    for (const NamedModule& module : modules) {
      if (!pattern->matches(module.raw_path)) continue;
      ++count;
      found = module.linear_class;
    }
    if (count == 0) continue;
    impl.notices->notice(
        "exclude " + pattern->text(),
        fmt::format("exclude list names {} ({} modules), their tensors are {}: read as {}",
                    pattern->text(), count, linear_class_name(found), linear_class_name(found)));
  }
}

bool algorithm_fits(std::string_view algorithm, LinearClass found) {
  switch (found) {
    case LinearClass::kNvfp4:
      return algorithm.find("NVFP4") != std::string_view::npos;
    case LinearClass::kFp8PerTensor:
    case LinearClass::kFp8PerChannel:
    case LinearClass::kFp8Block:
      return algorithm == "FP8";
    case LinearClass::kMxfp8:
      return algorithm == "MXFP8";
    case LinearClass::kMxfp4:
      return algorithm == "MXFP4";
    case LinearClass::kDense:
      return algorithm.empty();
  }
  return false;
}

/// Modules whose tensors are not what the plan says, by algorithm and class.
using Misfits = std::map<std::pair<std::string, LinearClass>, std::int64_t>;

Misfits find_misfits(const QuantPlan& plan, const std::vector<NamedModule>& modules) {
  const bool says_nothing = plan.algorithm.empty() && plan.groups.empty() && plan.layers.empty();
  Misfits misfits;
  for (const NamedModule& module : modules) {
    const std::string_view algorithm = plan.algorithm_of(module.raw_path);
    if (algorithm == "MIXED_PRECISION" || (algorithm.empty() && !says_nothing)) continue;
    if (!algorithm_fits(algorithm, module.linear_class)) {
      ++misfits[{std::string(algorithm), module.linear_class}];
    }
  }
  return misfits;
}

/// How many experts a plan calls quantised in their activations that have no scale for them.
std::int64_t count_without_scales(const CheckpointWeights::Impl& impl, const QuantPlan& plan) {
  std::int64_t count = 0;
  for (const auto& [layer_idx, layer] : impl.layers) {
    if (!layer.is_good || layer.common_class() != LinearClass::kNvfp4) continue;
    const RawTensor& payload = *projection_entries(layer, 0, Projection::kDown).payload();
    const auto declared = plan.declares_activation_quantization(parent_path(payload.name));
    if (declared.value_or(false)) count += layer.num_experts - count_input_scales(layer);
  }
  return count;
}

std::int64_t count_disagreements(const CheckpointWeights::Impl& impl,
                                 const QuantPlan& plan,
                                 const std::vector<NamedModule>& modules) {
  std::int64_t count = count_without_scales(impl, plan);
  for (const auto& [what, misfits] : find_misfits(plan, modules))
    count += misfits;
  return count;
}

/// Of two files that differ, the one that agrees with more of the tensors; config.json when both
/// do.
void choose_config(CheckpointWeights::Impl& impl, const std::vector<NamedModule>& modules) {
  QuantPlan& plan = impl.config.quant;
  if (!plan.alternative) return;
  const QuantAlternative& other = *plan.alternative;
  QuantPlan candidate = plan;
  if (!other.algorithm.empty()) candidate.algorithm = other.algorithm;
  if (!other.layers.empty()) candidate.layers = other.layers;
  const bool is_better =
      count_disagreements(impl, candidate, modules) < count_disagreements(impl, plan, modules);
  const std::string what = other.algorithm.empty() ? std::string("quantized_layers")
                                                   : fmt::format("quant_algo ({} and {})",
                                                                 plan.algorithm, other.algorithm);
  impl.notices->notice("config files differ",
                       fmt::format("config.json and {} differ in {}: {} is taken{}", other.where,
                                   what, is_better ? "the latter" : "config.json",
                                   is_better ? ", the tensors agree with it" : ""));
  if (is_better) {
    candidate.alternative = nullptr;
    plan = std::move(candidate);
  }
}

/// The config's algorithm of a module against its tensors, one notice per pair.
void notice_algorithms(CheckpointWeights::Impl& impl, const std::vector<NamedModule>& modules) {
  for (const auto& [key, count] : find_misfits(impl.config.quant, modules)) {
    impl.notices->notice(
        fmt::format("algorithm {} {}", key.first, linear_class_name(key.second)),
        fmt::format("the config says {} for {} modules whose tensors are {}: read as {}",
                    key.first.empty() ? "nothing about quantisation" : key.first, count,
                    linear_class_name(key.second), linear_class_name(key.second)));
  }
}

}  // namespace

void compare_with_config(CheckpointWeights::Impl& impl) {
  notice_gate_up_ratio(impl);
  const std::vector<NamedModule> modules = quantized_modules(impl);
  choose_config(impl, modules);
  notice_excludes(impl, modules);
  notice_algorithms(impl, modules);
}

}  // namespace halfbyte
