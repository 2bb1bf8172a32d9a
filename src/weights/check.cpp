// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/thread_pool.h"
#include "checkpoint/module_path.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

constexpr std::size_t kMaxNames = 16;
constexpr std::uint8_t kSaturated = 0x7E;  // the largest block scale

bool is_known_scale(std::string_view name) {
  for (const std::string_view end : {".input_scale", ".input_global_scale", ".k_scale", ".v_scale",
                                     ".kv_scale", ".output_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

void count_saturated(CheckpointWeights::Impl& impl, const LoadedLinear& linear) {
  const auto scales = linear.matrix.block_scale;
  impl.num_scale_bytes += static_cast<std::int64_t>(scales.size());
  impl.num_saturated_bytes += std::count(scales.begin(), scales.end(), kSaturated);
}

void check_modules(CheckpointWeights::Impl& impl, Findings& findings) {
  for (const auto& [path, kind] : impl.kinds) {
    const LinearEntries& entries = impl.map.modules.at(path).entries;
    if (kind.linear_class == LinearClass::kMxfp4) continue;  // named by inspect; nothing reads it
    auto linear = load_linear(entries, kind);
    if (linear.ok()) {
      count_saturated(impl, *linear);
    } else {
      findings.add(fmt::format("{}: {}{}", parent_path(path), linear.status().message(),
                               in_file(*entries.payload(), *impl.raw)),
                   linear.status().code());
    }
    impl.raw->drop(*entries.payload());
  }
}

/// Every expert of a layer, in parallel; findings stay in the order of experts.
void check_experts(CheckpointWeights& weights,
                   CheckpointWeights::Impl& impl,
                   const ExpertLayer& layer,
                   ThreadPool& pool,
                   Findings& findings) {
  std::vector<Status> results(static_cast<std::size_t>(layer.num_experts));
  pool.parallel_for(layer.num_experts, [&](std::int64_t expert_idx, int /*thread*/) {
    auto expert = weights.expert(layer.layer_idx, expert_idx);
    if (expert.ok()) {
      count_saturated(impl, expert->gate);
      count_saturated(impl, expert->up);
      count_saturated(impl, expert->down);
    } else {
      results[static_cast<std::size_t>(expert_idx)] = expert.take_status();
    }
    weights.drop_expert(layer.layer_idx, expert_idx);
  });
  for (const Status& status : results) {
    if (!status.ok()) findings.add(std::string(status.message()), status.code());
  }
}

void check_moe_layers_exist(const CheckpointWeights::Impl& impl, Findings& findings) {
  for (std::int64_t layer = 0; layer < impl.config.num_hidden_layers; ++layer) {
    if (is_moe_layer(impl.config, layer) && !impl.layers.contains(layer)) {
      findings.add(
          fmt::format("layer {}: the config says it has routed experts, no file has them", layer),
          StatusCode::kNotFound);
    }
  }
}

}  // namespace

std::vector<const RawTensor*> unused_tensors(const CheckpointWeights::Impl& impl) {
  std::vector<const RawTensor*> unused = impl.map.unused;
  for (const auto& [name, tensor] : impl.map.plain) {
    const bool is_tied_head = name == "lm_head.weight" && impl.config.tie_word_embeddings;
    if (!impl.is_consumed(*tensor) && (is_known_scale(name) || is_tied_head)) {
      unused.push_back(tensor);
    }
  }
  std::sort(unused.begin(), unused.end());
  return unused;
}

Status CheckpointWeights::check_all_consumed() const {
  const std::vector<const RawTensor*> unused = unused_tensors(*impl_);
  std::vector<std::string_view> left;
  for (const RawTensor& tensor : impl_->raw->tensors()) {
    if (!impl_->is_consumed(tensor) && !std::binary_search(unused.begin(), unused.end(), &tensor)) {
      left.push_back(tensor.name);
    }
  }
  if (left.empty()) return {};
  const std::size_t num_left = left.size();
  left.resize(std::min(num_left, kMaxNames));
  std::string text =
      fmt::format("{} tensors that the model does not use: {}", num_left, fmt::join(left, ", "));
  if (num_left > kMaxNames) text += fmt::format(" and {} more", num_left - kMaxNames);
  return Status(StatusCode::kUnsupported, std::move(text));
}

Status CheckpointWeights::check_all_bytes() {
  impl_->num_scale_bytes = 0;
  impl_->num_saturated_bytes = 0;
  Findings findings;
  ThreadPool pool;
  check_moe_layers_exist(*impl_, findings);
  check_modules(*impl_, findings);
  for (const auto& [layer_idx, layer] : impl_->layers) {
    if (layer.common_class() == LinearClass::kMxfp4) continue;
    check_experts(*this, *impl_, layer, pool, findings);
  }
  for (std::int64_t layer = 0; layer < impl_->config.num_hidden_layers; ++layer) {
    if (auto scales = kv_scales(layer); !scales.ok()) {
      findings.add(std::string(scales.status().message()), scales.status().code());
    }
  }
  return findings.to_status();
}

}  // namespace halfbyte
