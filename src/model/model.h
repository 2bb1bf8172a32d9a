// SPDX-License-Identifier: Apache-2.0
//
// A decoder-only model on one rank: a batch of tokens in, logits out.
#ifndef HALFBYTE_MODEL_MODEL_H_
#define HALFBYTE_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "checkpoint/model_config.h"
#include "comm/transport.h"
#include "halfbyte/engine.h"

namespace halfbyte {

class CheckpointWeights;

/// Consecutive tokens of one sequence inside a batch.
struct SequenceSlice {
  std::int64_t first_token = 0;  // row in the batch
  std::int64_t num_tokens = 0;
  std::int64_t context_tokens = 0;            // tokens of this sequence already in the cache
  std::span<const std::int32_t> block_table;  // cache blocks, enough for context + new tokens
};

/// What one rank computes in one step. May hold no tokens: the rank still joins every exchange.
struct Batch {
  std::span<const std::int32_t> token_ids;        // [num_tokens]
  std::span<const SequenceSlice> sequences;       // cover the tokens in order
  std::span<const std::int32_t> logit_rows;       // rows whose logits are wanted, ascending
  std::span<const std::int64_t> tokens_per_rank;  // T_r of every dp rank; empty with one rank
};

struct ModelOptions {
  MoeOptions moe;  // resolved; capacity_tokens is the largest forward of this rank
  ActivationMode linear_activation_mode = ActivationMode::kAuto;
  ComputeDtype dtype = ComputeDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  std::int64_t max_context_tokens = 0;
  std::int64_t kv_cache_blocks = 0;  // per rank
  // As in EngineOptions.
  bool latent_norm_uses_config_epsilon = false;
};

inline constexpr std::int64_t kKvBlockTokens = 16;  // tokens of one cache block

/// One rank of a model. Thread rule: its rank's thread.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  /// Writes K and V of every token into its blocks and fills logits fp32 [logit_rows.size(),
  /// vocab]. A row's logits do not depend on the rest of the batch. All ranks call together.
  virtual Status forward(const Batch& batch, std::span<float> logits) = 0;
  virtual std::string describe_plan() const = 0;
  virtual std::string_view backend_name() const = 0;
  virtual std::string_view transport_name() const = 0;
  virtual ActivationMode activation_mode() const = 0;
  /// Of every MoE layer on this rank, in layer order. Any thread.
  virtual std::vector<ExpertLoad> expert_load() const = 0;
};

/// Weights that every rank of a process shares, read once; immutable after loading.
class SharedWeights;

/// Loads a model's ranks: element r of the result is rank r. `transports` is empty for one rank,
/// else one per rank; the calls that need all ranks run on threads of their own. `progress` may be
/// null. Throws std::system_error when the system refuses a rank its thread.
Result<std::vector<std::unique_ptr<Model>>> load_model(
    CheckpointWeights& weights,
    const ModelOptions& options,
    std::span<const std::unique_ptr<Transport>> transports,
    const std::shared_ptr<NoticeSink>& notices,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

/// Why no model of this build computes what the config describes; ok: one does.
Status check_architecture(const ModelConfig& config);

/// Loads what all ranks share and drops it again. A fault is about a tensor outside the experts
/// that is missing or has another size than the config says, the first of each layer; when there is
/// none of these, it names every tensor, of experts too, that the model would not use. The
/// architecture must be one that runs.
std::vector<Status> check_model_tensors(CheckpointWeights& weights);

/// The MoeSpec of a layer under a config, without loading anything: for plan and inspect.
MoeSpec moe_spec_of(const ModelConfig& config,
                    WeightFormat expert_format,
                    const ModelOptions& options);

/// Bytes of KV cache per block and layer-sum on one rank.
std::int64_t kv_bytes_per_block(const ModelConfig& config, KvCacheDtype dtype);

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_MODEL_H_
