// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "checkpoint/module_path.h"
#include "formats/convert.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

constexpr std::uint8_t kSaturated = 0x7E;  // the largest block scale

bool is_known_scale(std::string_view name) {
  for (const std::string_view end : {".input_scale", ".input_global_scale", ".k_scale", ".v_scale",
                                     ".kv_scale", ".output_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

/// kCorruptData: a 16- or 32-bit value that is infinite or not a number, with its place.
Status check_finite(std::string_view name, const RawTensor& tensor) {
  if (!is_wide_float(tensor.dtype)) return {};
  const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  const std::int64_t width = dtype_bytes(tensor.dtype);
  const auto count = static_cast<std::int64_t>(tensor.bytes.size()) / width;
  std::int64_t num_bad = 0, first_bad = 0;
  float first_value = 0.0F;
  std::vector<float> row(static_cast<std::size_t>(std::max<std::int64_t>(cols, 1)));
  for (std::int64_t at = 0; at < count; at += cols) {
    widen_to_f32(tensor.dtype, tensor.bytes.data() + at * width, cols, row.data());
    for (std::int64_t col = 0; col < cols; ++col) {
      const float value = row[static_cast<std::size_t>(col)];
      if (std::isfinite(value) || num_bad++ > 0) continue;
      first_bad = at + col;
      first_value = value;
    }
  }
  if (num_bad == 0) return {};
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: value {} at row {}, column {}, want finite values ({} are not)",
                            name, first_value, first_bad / cols, first_bad % cols, num_bad));
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
    if (linear.ok()) count_saturated(impl, *linear);
    for (const Status& status :
         {linear.ok() ? Status() : linear.take_status(), check_fp8_values(entries, kind)}) {
      if (status.ok()) continue;
      findings.add(fmt::format("{}: {}{}", parent_path(path), status.message(),
                               in_file(*entries.payload(), *impl.raw)),
                   status.code());
    }
    impl.raw->drop(*entries.payload());
  }
}

/// A stack is one tensor for all experts, and for gate and up: it is read once.
bool reads_payload(const ExpertLayer& layer, std::int64_t expert_idx, Projection projection) {
  if (!layer.tensors->is_stacked()) return true;
  return expert_idx == 0 && !(projection == Projection::kUp && layer.gated);
}

using ProjectionFaults = std::array<Status, kNumProjections>;

ProjectionFaults check_expert_bytes(CheckpointWeights::Impl& impl,
                                    const ExpertLayer& layer,
                                    std::int64_t expert_idx) {
  ProjectionFaults faults;
  for (const Projection projection : kProjections) {
    if (!layer.has(projection)) continue;
    Status& fault = faults[static_cast<std::size_t>(projection)];
    auto linear = load_projection(layer, expert_idx, projection, *impl.raw);
    if (!linear.ok()) {
      fault = linear.take_status();
      continue;
    }
    count_saturated(impl, *linear);
    const LinearEntries& entries = projection_entries(layer, expert_idx, projection);
    fault = check_fp8_values(entries, layer.kind(projection));
    if (fault.ok() && reads_payload(layer, expert_idx, projection))
      fault = check_finite(short_name(*entries.payload()), *entries.payload());
  }
  return faults;
}

/// Every expert of a layer, in parallel; findings stay in the order of experts.
void check_experts(CheckpointWeights& weights,
                   CheckpointWeights::Impl& impl,
                   const ExpertLayer& layer,
                   ThreadPool& pool,
                   Findings& findings) {
  std::vector<ProjectionFaults> faults(static_cast<std::size_t>(layer.num_experts));
  pool.parallel_for(layer.num_experts, [&](std::int64_t expert_idx, int /*thread*/) {
    faults[static_cast<std::size_t>(expert_idx)] = check_expert_bytes(impl, layer, expert_idx);
    weights.drop_expert(layer.layer_idx, expert_idx);
  });
  for (std::size_t expert = 0; expert < faults.size(); ++expert) {
    for (const Status& fault : faults[expert]) {
      if (fault.ok()) continue;
      findings.add_expert(layer.layer_idx, static_cast<std::int64_t>(expert), fault.message(),
                          fault.code());
    }
  }
}

/// Every tensor outside the experts but scales, which have checks of their own; in order of names.
void check_values(const CheckpointWeights::Impl& impl, Findings& findings) {
  const std::map<std::string_view, const RawTensor*> by_name(impl.map.plain.begin(),
                                                             impl.map.plain.end());
  for (const auto& [name, tensor] : by_name) {
    if (name.find("_scale") != std::string_view::npos) continue;
    const Status status = check_finite(tensor->name, *tensor);
    if (status.ok()) continue;
    findings.add(fmt::format("{}{}", status.message(), in_file(*tensor, *impl.raw)), status.code());
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

std::int64_t CheckpointWeights::used_bytes() const {
  std::uint64_t bytes = impl_->raw->total_bytes();
  for (const RawTensor* tensor : unused_tensors(*impl_)) {
    bytes -= tensor->bytes.size();
  }
  return static_cast<std::int64_t>(bytes);
}

Status CheckpointWeights::check_all_consumed() const {
  const std::vector<const RawTensor*> unused = unused_tensors(*impl_);
  std::vector<std::string_view> left;
  for (const RawTensor& tensor : impl_->raw->tensors()) {
    if (!impl_->is_consumed(tensor) && !std::binary_search(unused.begin(), unused.end(), &tensor)) {
      left.push_back(tensor.name);
    }
  }
  if (left.empty()) return check_tied_head_bytes(*impl_);
  const std::size_t num_left = left.size();
  left.resize(std::min(num_left, kMaxListed));
  std::string text =
      fmt::format("{} tensors that the model does not use: {}", num_left, fmt::join(left, ", "));
  if (num_left > kMaxListed) text += fmt::format(" and {} more", num_left - kMaxListed);
  return Status(StatusCode::kUnsupported, std::move(text));
}

void CheckpointWeights::find_bad_bytes(Findings& findings) {
  impl_->num_scale_bytes = 0;
  impl_->num_saturated_bytes = 0;
  ThreadPool pool;
  check_moe_layers_exist(*impl_, findings);
  check_modules(*impl_, findings);
  check_values(*impl_, findings);
  for (const auto& [layer_idx, layer] : impl_->layers) {
    // Of a layer that is not whole the headers said enough.
    if (!layer.is_good || layer.common_class() == LinearClass::kMxfp4) continue;
    check_experts(*this, *impl_, layer, pool, findings);
  }
  for (std::int64_t layer = 0; layer < impl_->config.num_hidden_layers; ++layer) {
    const auto scales = kv_scales(layer);
    if (!scales.ok()) findings.add(scales.status());
  }
  findings.add(check_tied_head_bytes(*impl_));
}

Status CheckpointWeights::check_all_bytes() {
  Findings findings;
  find_bad_bytes(findings);
  return findings.to_status();
}

}  // namespace halfbyte
