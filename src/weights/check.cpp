// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

constexpr std::size_t kMaxNames = 16;

bool is_known_scale(std::string_view name) {
  for (const std::string_view end : {".input_scale", ".input_global_scale", "_input_scale",
                                     ".k_scale", ".v_scale", ".kv_scale", ".output_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

/// Known and unused: what no path here needs, whether or not it was asked for.
std::vector<const RawTensor*> unused_tensors(const CheckpointWeights::Impl& impl) {
  std::vector<const RawTensor*> unused = impl.map.unused;
  for (const auto& [name, tensor] : impl.map.plain) {
    const bool is_tied_head = name == "lm_head.weight" && impl.config.tie_word_embeddings;
    if (!impl.is_consumed(*tensor) && (is_known_scale(name) || is_tied_head)) {
      unused.push_back(tensor);
    }
  }
  return unused;
}

Status CheckpointWeights::check_all_consumed() const {
  std::vector<const RawTensor*> unused = unused_tensors(*impl_);
  std::sort(unused.begin(), unused.end());
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
  if (num_left > kMaxNames) {
    text += fmt::format(" and {} more (halfbyte check lists all)", num_left - kMaxNames);
  }
  return Status(StatusCode::kUnsupported, std::move(text));
}

Status CheckpointWeights::check_all_bytes() {
  return {};
}

}  // namespace halfbyte
