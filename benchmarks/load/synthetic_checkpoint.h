// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BENCHMARKS_LOAD_SYNTHETIC_CHECKPOINT_H_
#define HALFBYTE_BENCHMARKS_LOAD_SYNTHETIC_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>

namespace halfbyte::benchmarks {

/// A Qwen3-MoE model: experts in NVFP4 under ModelOpt's names, everything else in BF16.
struct SyntheticSizes {
  std::int64_t layers = 1;
  std::int64_t hidden = 16;
  std::int64_t intermediate = 16;
  std::int64_t experts = 8;
  std::int64_t top_k = 8;
  std::int64_t heads = 2;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 8;
  std::int64_t vocab = 16;
  std::int64_t context = 64;
  std::int64_t shards = 1;
};

struct SyntheticCheckpoint {
  std::int64_t num_tensors = 0;
  std::int64_t tensor_bytes = 0;  // of all tensors
  std::int64_t expert_bytes = 0;  // of one expert
};

/// Writes shards, an index and a config.json into `directory`. The tensors hold random numbers of a
/// size that keeps activations finite, so that routing is random too; they are written through a
/// small buffer, so that writing leaves no memory behind. Throws std::ios::failure when a shard
/// cannot be written.
SyntheticCheckpoint write_synthetic_checkpoint(const std::filesystem::path& directory,
                                               const SyntheticSizes& sizes);

}  // namespace halfbyte::benchmarks

#endif  // HALFBYTE_BENCHMARKS_LOAD_SYNTHETIC_CHECKPOINT_H_
