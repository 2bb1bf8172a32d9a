// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

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
  impl.notice("gate and up differ",
              fmt::format("gate and up have different global scales in {} of {} experts (largest "
                          "ratio {:.3g}): each half keeps its own",
                          num_different, num_pairs, largest));
}

/// One thing that a pattern may name, under the checkpoint's spelling.
struct NamedModule {
  std::string_view raw_path;
  LinearClass linear_class;
};

std::string_view path_of(const RawTensor& payload) {
  return payload.name.substr(0, payload.name.rfind('.'));
}

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
            {path_of(*expert[static_cast<std::size_t>(projection)].payload()), linear_class});
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
    impl.notice(
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

/// The config's algorithm of a module against its tensors, one notice per pair.
void notice_algorithms(CheckpointWeights::Impl& impl, const std::vector<NamedModule>& modules) {
  const QuantPlan& plan = impl.config.quant;
  const bool says_nothing = plan.algorithm.empty() && plan.groups.empty() && plan.layers.empty();
  std::map<std::pair<std::string, LinearClass>, std::int64_t> counts;
  for (const NamedModule& module : modules) {
    const std::string_view algorithm = plan.algorithm_of(module.raw_path);
    if (algorithm == "MIXED_PRECISION" || (algorithm.empty() && !says_nothing)) continue;
    if (!algorithm_fits(algorithm, module.linear_class)) {
      ++counts[{std::string(algorithm), module.linear_class}];
    }
  }
  for (const auto& [key, count] : counts) {
    impl.notice(fmt::format("algorithm {} {}", key.first, linear_class_name(key.second)),
                fmt::format("the config says {} for {} modules whose tensors are {}: read as {}",
                            key.first.empty() ? "nothing about quantisation" : key.first, count,
                            linear_class_name(key.second), linear_class_name(key.second)));
  }
}

}  // namespace

void compare_with_config(CheckpointWeights::Impl& impl) {
  notice_gate_up_ratio(impl);
  const std::vector<NamedModule> modules = quantized_modules(impl);
  notice_excludes(impl, modules);
  notice_algorithms(impl, modules);
}

}  // namespace halfbyte
