// SPDX-License-Identifier: Apache-2.0
//
// The paged KV cache of one rank: per layer a pool of keys and a pool of values, one row per token.
#ifndef HALFBYTE_MODEL_KV_CACHE_H_
#define HALFBYTE_MODEL_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/host_buffer.h"
#include "checkpoint/model_config.h"
#include "halfbyte/dtype.h"
#include "halfbyte/engine.h"

namespace halfbyte {

/// Rows of one pool; a view. Row `block * kKvBlockTokens + offset` belongs to one token.
/// kF8E4m3 stores value / scale.
struct KvPool {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;  // kF32, kBf16 or kF8E4m3
  float scale = 1.0F;
  std::int64_t row_width = 0;  // elements
};

/// What attention of one layer reads and appends to. Multi-head latent attention has one pool,
/// rows [c_kv after its norm | k_pe after rotation], that serves as keys and (its first columns) as
/// values.
struct KvLayer {
  KvPool keys;
  KvPool values;
};

/// Elements of a token's row in the key and in the value pool; the latter is 0 under MLA.
struct KvRowWidths {
  std::int64_t keys = 0;
  std::int64_t values = 0;
};
KvRowWidths kv_row_widths(const ModelConfig& config);

/// kAuto is bfloat16.
DType kv_cache_element(KvCacheDtype dtype);

/// Owns every pool. Thread rule: its rank's thread.
class KvCache {
 public:
  /// `scales` [num_hidden_layers]: k and v scale of each layer; read under fp8 only, may be empty
  /// otherwise. kOutOfMemory names the size.
  static Result<KvCache> allocate(const ModelConfig& config,
                                  KvCacheDtype dtype,
                                  std::int64_t num_blocks,
                                  std::span<const std::pair<float, float>> scales);

  std::int64_t num_blocks() const { return num_blocks_; }
  const KvLayer& layer(std::int64_t layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)];
  }

 private:
  KvCache() = default;
  std::int64_t num_blocks_ = 0;
  std::vector<KvLayer> layers_;
  HostBuffer memory_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_KV_CACHE_H_
