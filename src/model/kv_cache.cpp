// SPDX-License-Identifier: Apache-2.0
#include "model/kv_cache.h"

#include "base/workspace_layout.h"
#include "model/model.h"

namespace halfbyte {
namespace {

std::size_t pool_bytes(std::int64_t num_blocks, std::int64_t row_width, DType dtype) {
  return static_cast<std::size_t>(num_blocks * kKvBlockTokens * row_width * dtype_bytes(dtype));
}

}  // namespace

KvRowWidths kv_row_widths(const ModelConfig& config) {
  if (config.kv_lora_rank > 0) return {config.kv_lora_rank + config.qk_rope_head_dim, 0};
  const std::int64_t width = config.num_key_value_heads * config.head_dim;
  return {width, width};
}

DType kv_cache_element(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kFloat32:
      return DType::kF32;
    case KvCacheDtype::kFp8:
      return DType::kF8E4m3;
    case KvCacheDtype::kAuto:
    case KvCacheDtype::kBfloat16:
      break;
  }
  return DType::kBf16;
}

std::int64_t kv_bytes_per_block(const ModelConfig& config, KvCacheDtype dtype) {
  const KvRowWidths widths = kv_row_widths(config);
  return config.num_hidden_layers * kKvBlockTokens * (widths.keys + widths.values) *
         dtype_bytes(kv_cache_element(dtype));
}

Result<KvCache> KvCache::allocate(const ModelConfig& config,
                                  KvCacheDtype dtype,
                                  std::int64_t num_blocks,
                                  std::span<const std::pair<float, float>> scales) {
  const KvRowWidths widths = kv_row_widths(config);
  const DType element = kv_cache_element(dtype);
  KvCache cache;
  cache.num_blocks_ = num_blocks;
  WorkspaceLayout layout;
  std::vector<std::pair<std::size_t, std::size_t>> offsets;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::size_t keys = layout.add("keys", pool_bytes(num_blocks, widths.keys, element));
    offsets.emplace_back(keys,
                         layout.add("values", pool_bytes(num_blocks, widths.values, element)));
  }
  HALFBYTE_ASSIGN_OR_RETURN(cache.memory_, HostBuffer::allocate(layout.total_bytes()));
  std::byte* base = cache.memory_.data();
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const bool scaled = element == DType::kF8E4m3 && i < scales.size();
    const auto [key_scale, value_scale] = scaled ? scales[i] : std::pair{1.0F, 1.0F};
    KvLayer layer;
    layer.keys = {base + offsets[i].first, element, key_scale, widths.keys};
    layer.values = {base + offsets[i].second, element, value_scale, widths.values};
    if (widths.values == 0) layer.values = layer.keys;
    cache.layers_.push_back(layer);
  }
  return cache;
}

}  // namespace halfbyte
