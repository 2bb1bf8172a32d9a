// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "engine/engine_parts.h"
#include "engine/quantization.h"
#include "engine/sizing.h"
#include "moe/compatibility.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte {
namespace {

Result<std::int64_t> first_moe_layer(const ModelConfig& config) {
  for (std::int64_t layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx) {
    if (is_moe_layer(config, layer_idx)) return layer_idx;
  }
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{} has no mixture-of-experts layer, want at least one", config.architecture));
}

// The routed experts' description, from headers and scalars only.
Result<MoeSpec> read_moe_spec(CheckpointWeights& weights, const ModelOptions& options) {
  HALFBYTE_ASSIGN_OR_RETURN(const std::int64_t layer_idx, first_moe_layer(weights.config()));
  // w4a16 asks for no input scale; the mode in force is checked when the layer is loaded.
  HALFBYTE_ASSIGN_OR_RETURN(const ExpertLayerInfo layer,
                            weights.expert_layer(layer_idx, ActivationMode::kW4a16));
  MoeSpec spec = moe_spec_of(weights.config(), layer.format, options);
  spec.declares_activation_quantization = layer.declares_activation_quantization;
  return spec;
}

// Ranks are threads here: past this a process does not get them, and no machine has cores for them.
constexpr int kMaxRanks = 1024;

// A transport is wanted exactly when there is more than one rank.
Status check_single_rank(const std::string& wanted) {
  if (wanted == "auto" || wanted == "local") return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--moe-transport {} connects ranks, and there is 1: give --tp-size or "
                      "--ep-size, or leave the transport to auto",
                      wanted)};
}

// One transport per rank, or none for a single rank. All ranks of this engine are its threads.
Result<std::vector<std::unique_ptr<Transport>>> connect_ranks(const std::string& wanted,
                                                              int num_ranks) {
  if (num_ranks == 1) {
    HALFBYTE_RETURN_IF_ERROR(check_single_rank(wanted));
    return std::vector<std::unique_ptr<Transport>>();
  }
  if (num_ranks > kMaxRanks) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--tp-size is {}, want at most {}: each rank is a thread here",
                              num_ranks, kMaxRanks));
  }
  if (wanted == "auto" || wanted == "in_process") return make_in_process_transports(num_ranks);
  for (const TransportEntry& entry : list_transports()) {
    if (entry.name == wanted && !entry.available.ok()) return entry.available.clone();
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("transport {} cannot connect {} ranks here: use --moe-transport "
                            "in_process",
                            wanted, num_ranks));
}

Status validate_counts(const EngineOptions& options) {
  for (const auto& [name, value, least] :
       {std::tuple("max_running_requests", options.max_running_requests, std::int64_t{1}),
        std::tuple("num_sampled_ids", options.num_sampled_ids, std::int64_t{0})}) {
    if (value >= least) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("{} is {}, want at least {}", name, value, least)};
  }
  return {};
}

EngineInfo make_info(const ModelConfig& config,
                     const Model& model,
                     const MoeOptions& moe,
                     std::int64_t max_context_tokens,
                     std::int64_t num_blocks) {
  EngineInfo info;
  info.model_name = config.architecture;
  info.backend = model.backend_name();
  info.transport = model.transport_name();
  info.activation_mode = activation_mode_name(model.activation_mode());
  info.ep_size = std::max(moe.ep_size, 1);
  info.vocab_size = config.vocab_size;
  info.max_context_tokens = max_context_tokens;
  info.max_sequence_tokens = std::min(max_context_tokens, num_blocks * kKvBlockTokens);
  info.eos_token_ids = config.eos_token_ids;
  return info;
}

// What needs no decision.
ModelOptions model_options_of(const EngineOptions& options) {
  ModelOptions model;
  model.moe = options.moe;
  model.moe.capacity_tokens = options.max_prefill_tokens;
  model.moe.exact_float32 |= options.dtype == ComputeDtype::kFloat32;
  model.linear_activation_mode = options.linear_activation_mode;
  model.dtype = options.dtype;
  model.kv_cache_dtype = options.kv_cache_dtype;
  model.latent_norm_uses_config_epsilon = options.latent_norm_uses_config_epsilon;
  return model;
}

// Decides everything, then loads.
Result<EngineParts> load_engine_parts(const EngineOptions& options) {
  HALFBYTE_RETURN_IF_ERROR(validate_counts(options));
  const auto notices = std::make_shared<NoticeSink>(options.notice);
  HALFBYTE_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointWeights> weights,
                            CheckpointWeights::open(options.model_path, options.ignore_index,
                                                    notices, options.config_overrides));
  const ModelConfig& config = weights->config();
  HALFBYTE_RETURN_IF_ERROR(check_quantization(options.quantization, config.quant));

  ModelOptions model_options = model_options_of(options);
  HALFBYTE_ASSIGN_OR_RETURN(
      model_options.max_context_tokens,
      decide_context(options.max_context_tokens, config.max_position_embeddings));
  HALFBYTE_ASSIGN_OR_RETURN(const MoeSpec spec, read_moe_spec(*weights, model_options));
  HALFBYTE_ASSIGN_OR_RETURN(MoeOptions moe, resolve_options(spec, model_options.moe, *notices));
  HALFBYTE_ASSIGN_OR_RETURN(const TokenBudget budget,
                            make_token_budget(budget_options({}, options, moe)));
  moe.capacity_tokens = budget.max_forward_tokens;
  model_options.moe = moe;

  EngineParts parts;
  const int num_ranks = std::max(moe.tp_size, 1);
  parts.dp_size = std::max(moe.dp_size, 1);
  parts.limits = decide_limits(options, budget, parts.dp_size);
  const KvCacheSizing sizing = kv_cache_sizing(options, config, parts.limits, num_ranks);
  HALFBYTE_ASSIGN_OR_RETURN(parts.num_blocks, decide_kv_blocks(sizing));
  model_options.kv_cache_blocks = parts.num_blocks;
  parts.limits.max_prompt_logit_rows = decide_prompt_logit_rows(config.vocab_size);
  parts.keeps_prefixes = !options.disable_radix_cache;
  parts.schedule_policy = options.schedule_policy;
  parts.num_sampled_ids = options.num_sampled_ids;
  HALFBYTE_ASSIGN_OR_RETURN(parts.transports, connect_ranks(moe.transport, num_ranks));
  const auto start = std::chrono::steady_clock::now();
  HALFBYTE_ASSIGN_OR_RETURN(parts.models, load_model(*weights, model_options, parts.transports,
                                                     notices, options.load_progress));
  const std::chrono::duration<double> load_time = std::chrono::steady_clock::now() - start;
  parts.info = make_info(config, *parts.models.front(), moe, model_options.max_context_tokens,
                         parts.num_blocks);
  parts.info.weight_load_seconds = load_time.count();
  parts.info.weight_bytes = weights->used_bytes();
  parts.info.kv_cache_bytes = sizing.bytes_per_block * parts.num_blocks * num_ranks;
  parts.info.available_bytes = sizing.available_bytes;
  return parts;
}

Status with_memory_remedy(Status status) {
  if (status.code() != StatusCode::kOutOfMemory) return status;
  return {StatusCode::kOutOfMemory,
          fmt::format("{}; lower --max-total-tokens (the KV cache), --context-length, "
                      "--max-prefill-tokens (scratch) or --num-threads",
                      status.message())};
}

}  // namespace

// What a library below may throw (no memory, no thread) becomes a Status here.
Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  try {
    auto parts = load_engine_parts(options);
    if (!parts.ok()) return with_memory_remedy(parts.take_status());
    return EngineFactory::start(std::move(parts).value());
  } catch (const std::bad_alloc&) {
    return with_memory_remedy(
        Status(StatusCode::kOutOfMemory, "host memory ran out while loading"));
  } catch (const std::system_error& e) {
    return Status(StatusCode::kOutOfMemory,
                  fmt::format("the system refused a thread: {}; ask for fewer ranks, or raise the "
                              "limits of this process (ulimit -u, ulimit -v)",
                              e.what()));
  } catch (const std::exception& e) {
    return Status(StatusCode::kInternal, e.what());
  }
}

}  // namespace halfbyte
