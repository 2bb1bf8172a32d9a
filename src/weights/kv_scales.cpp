// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>

#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

/// The names under which a file may keep one of the two (checkpoints.md 2.3), below self_attn.
constexpr std::array<std::string_view, 4> kKeyNames = {"k_proj.k_scale", "k_scale",
                                                       "k_proj.output_scale", "kv_scale"};
constexpr std::array<std::string_view, 4> kValueNames = {"v_proj.v_scale", "v_scale",
                                                         "v_proj.output_scale", "kv_scale"};

}  // namespace

Result<std::pair<float, float>> CheckpointWeights::kv_scales(std::int64_t layer_idx) {
  Impl& impl = *impl_;
  Status fault;
  const auto read = [&](const std::array<std::string_view, 4>& names) {
    std::optional<float> scale;
    for (const std::string_view name : names) {
      const auto it = impl.map.plain.find(fmt::format("layers.{}.self_attn.{}", layer_idx, name));
      if (it == impl.map.plain.end()) continue;
      auto value = read_scalar(*it->second, false);
      if (!value.ok()) {
        fault = value.take_status();
      } else if (!is_good_scale(*value)) {
        fault = Status(StatusCode::kCorruptData,
                       fmt::format("{}: value {}, want finite and > 0", name, *value));
      } else {
        scale = *value;
      }
      impl.consume(it->second);
    }
    return scale;
  };
  const std::optional<float> key = read(kKeyNames);
  const std::optional<float> value = read(kValueNames);
  if (!fault.ok())
    return std::move(fault).with_context(fmt::format("layer {}: self_attn", layer_idx));
  if (key && value) return std::pair(*key, *value);
  if (key || value) {
    impl.notices->notice("kv scale of one",
                         fmt::format("layer {}: only one of k_scale and v_scale is there: it is "
                                     "used for both (and so in other layers)",
                                     layer_idx));
    return std::pair(key.value_or(value.value_or(1.0F)), value.value_or(key.value_or(1.0F)));
  }
  impl.notices->notice(
      "kv scales absent",
      impl.config.quant.kv_cache.empty()
          ? std::string("no KV-cache scales in the checkpoint: 1.0 is used")
          : fmt::format("the config promises an {} KV cache, but there are no scales: "
                        "1.0 is used",
                        impl.config.quant.kv_cache));
  return std::pair(1.0F, 1.0F);
}

}  // namespace halfbyte
