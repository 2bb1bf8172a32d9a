// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <optional>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

using Names = std::array<std::string_view, 4>;

/// The names under which a file may keep one of the two (checkpoints.md 2.3), below self_attn.
constexpr Names kKeyNames = {"k_proj.k_scale", "k_scale", "k_proj.output_scale", "kv_scale"};
constexpr Names kValueNames = {"v_proj.v_scale", "v_scale", "v_proj.output_scale", "kv_scale"};

const RawTensor* find_first(const CheckpointWeights::Impl& impl,
                            std::int64_t layer_idx,
                            const Names& names) {
  for (const std::string_view name : names) {
    const auto it = impl.map.plain.find(fmt::format("layers.{}.self_attn.{}", layer_idx, name));
    if (it != impl.map.plain.end()) return it->second;
  }
  return nullptr;
}

Result<float> read_kv_scale(const RawTensor& tensor, const RawTensors& raw) {
  HALFBYTE_ASSIGN_OR_RETURN(const float value, read_scalar(tensor, false));
  if (is_good_scale(value)) return value;
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: value {}, want finite and > 0{}", short_name(tensor), value,
                            in_file(tensor, raw)));
}

void notice_absent(const CheckpointWeights::Impl& impl) {
  const std::string& promised = impl.config.quant.kv_cache;
  impl.notices->notice("kv scales absent",
                       promised.empty()
                           ? std::string("no KV-cache scales in the checkpoint: 1.0 is used")
                           : fmt::format("the config promises an {} KV cache, but there are no "
                                         "scales: 1.0 is used",
                                         promised));
}

}  // namespace

KvScaleTensors find_kv_scales(const CheckpointWeights::Impl& impl, std::int64_t layer_idx) {
  return {find_first(impl, layer_idx, kKeyNames), find_first(impl, layer_idx, kValueNames)};
}

Result<std::pair<float, float>> CheckpointWeights::kv_scales(std::int64_t layer_idx) {
  const KvScaleTensors tensors = find_kv_scales(*impl_, layer_idx);
  std::optional<float> key, value;
  for (const auto& [tensor, scale] :
       {std::pair(tensors.key, &key), std::pair(tensors.value, &value)}) {
    if (tensor == nullptr) continue;
    auto read = read_kv_scale(*tensor, *impl_->raw);
    if (!read.ok()) {
      return read.take_status().with_context(fmt::format("layer {}: self_attn", layer_idx));
    }
    *scale = *read;
    impl_->consume(tensor);
  }
  if (!key && !value) {
    notice_absent(*impl_);
    return std::pair(1.0F, 1.0F);
  }
  if (!key || !value) {
    impl_->notices->notice("kv scale of one",
                           fmt::format("layer {}: only one of k_scale and v_scale is there: it is "
                                       "used for both (and so in other layers)",
                                       layer_idx));
  }
  return std::pair(key ? *key : *value, value ? *value : *key);
}

}  // namespace halfbyte
