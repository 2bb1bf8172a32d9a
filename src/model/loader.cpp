// SPDX-License-Identifier: Apache-2.0
//
// From a checkpoint to the ranks of a model.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/thread_pool.h"
#include "model/decoder.h"

namespace halfbyte {
namespace {

// Threads of one rank that prepare experts at the same time: each holds a whole expert.
constexpr int kMaxLoaderThreads = 4;

using Progress = std::function<void(std::int64_t, std::int64_t)>;

// Keeps the first failure of several threads.
class FirstFailure {
 public:
  void set(Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return !status_.ok();
  }
  Status take() {
    const std::lock_guard lock(mutex_);
    return std::move(status_);
  }

 private:
  std::mutex mutex_;
  Status status_;
};

// What all layers and ranks of a load have in common.
struct LoadContext {
  CheckpointWeights& weights;
  const ModelOptions& options;  // resolved
  const Progress& progress;
  std::vector<std::optional<ExpertLayerInfo>> layers;  // empty: a dense layer
};

ModelOptions resolve(const ModelOptions& options, std::size_t num_ranks) {
  ModelOptions resolved = options;
  if (resolved.dtype == ComputeDtype::kAuto) resolved.dtype = ComputeDtype::kFloat32;
  if (resolved.kv_cache_dtype == KvCacheDtype::kAuto)
    resolved.kv_cache_dtype = KvCacheDtype::kBfloat16;
  if (resolved.linear_activation_mode == ActivationMode::kAuto)
    resolved.linear_activation_mode = ActivationMode::kW4a16;
  if (resolved.moe.num_threads <= 0)
    resolved.moe.num_threads = std::max(1, usable_cores() / static_cast<int>(num_ranks));
  return resolved;
}

Status check_options(const ModelOptions& options) {
  const ActivationMode mode = options.linear_activation_mode;
  if (mode != ActivationMode::kW4a16 && mode != ActivationMode::kW4a4) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--linear-activation-mode {}: want auto, w4a16 or w4a4",
                              activation_mode_name(mode)));
  }
  if (options.moe.capacity_tokens > 0 && options.max_context_tokens > 0 &&
      options.kv_cache_blocks > 0) {
    return {};
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("capacity_tokens {}, max_context_tokens {} and kv_cache_blocks {} must "
                            "be above 0",
                            options.moe.capacity_tokens, options.max_context_tokens,
                            options.kv_cache_blocks));
}

std::int64_t widest_linear_input(const ModelConfig& config) {
  return std::max({config.hidden_size, config.intermediate_size,
                   config.num_shared_experts * config.moe_intermediate_size,
                   config.num_attention_heads * std::max(config.head_dim, config.v_head_dim),
                   config.q_lora_rank});
}

Result<std::unique_ptr<DenseOps>> make_ops(const ModelConfig& config, const ModelOptions& options) {
  const KvRowWidths widths = kv_row_widths(config);
  OpsOptions ops;
  ops.dtype = options.dtype;
  ops.exact_float32 = options.moe.exact_float32;
  ops.num_threads = options.moe.num_threads;
  ops.max_linear_cols = widest_linear_input(config);
  ops.max_context_tokens = options.max_context_tokens;
  ops.max_cache_row = std::max(widths.keys, widths.values);
  return make_dense_ops(options.moe.runner_backend, ops);
}

Status load_one_expert(CheckpointWeights& weights,
                       std::int64_t layer_idx,
                       std::int64_t expert_idx,
                       MoeLayer& layer) {
  {
    HALFBYTE_ASSIGN_OR_RETURN(const LoadedExpert expert, weights.expert(layer_idx, expert_idx));
    Status status = layer.load_expert(expert_idx, expert.view());
    if (!status.ok())
      return std::move(status).with_context(
          fmt::format("layer {}: expert {}", layer_idx, expert_idx));
  }
  weights.drop_expert(layer_idx, expert_idx);
  return {};
}

// Reads and prepares the rank's experts one at a time per thread; a thread holds one expert.
Status load_experts(CheckpointWeights& weights,
                    std::int64_t layer_idx,
                    MoeLayer& layer,
                    ThreadPool& loaders) {
  FirstFailure failure;
  loaders.parallel_for(layer.num_local_experts(), [&](std::int64_t i, int) {
    if (failure.failed()) return;
    failure.set(load_one_expert(weights, layer_idx, layer.first_expert() + i, layer));
  });
  return failure.take();
}

// The MoE layers of one rank, on the rank's own thread: creating one may talk to the other ranks.
class RankLoader {
 public:
  RankLoader(const LoadContext& context, Transport* transport, MoeOptions moe)
      : context_(context),
        transport_(transport),
        moe_(std::move(moe)),
        loaders_(std::min(moe_.num_threads, kMaxLoaderThreads)) {}

  Status run(std::vector<std::unique_ptr<MoeLayer>>& experts) {
    const auto num_layers = static_cast<std::int64_t>(context_.layers.size());
    for (std::int64_t i = 0; i < num_layers; ++i) {
      const auto& info = context_.layers[static_cast<std::size_t>(i)];
      experts.emplace_back();
      if (info) {
        const std::string context = fmt::format("layer {}", i);
        HALFBYTE_RETURN_IF_ERROR(create_layer(*info, experts.back()).with_context(context));
        // What is wrong with an expert names its layer itself.
        HALFBYTE_RETURN_IF_ERROR(load_experts(context_.weights, i, *experts.back(), loaders_));
        HALFBYTE_RETURN_IF_ERROR(experts.back()->finish_loading().with_context(context));
      }
      if (is_rank_zero() && context_.progress) context_.progress(i + 1, num_layers);
    }
    return {};
  }

 private:
  bool is_rank_zero() const { return transport_ == nullptr || transport_->rank() == 0; }

  Status create_layer(const ExpertLayerInfo& info, std::unique_ptr<MoeLayer>& layer) {
    MoeSpec spec = moe_spec_of(context_.weights.config(), info.format, context_.options);
    spec.declares_activation_quantization = info.declares_activation_quantization;
    HALFBYTE_ASSIGN_OR_RETURN(layer, MoeLayer::create(spec, moe_, info.input_scales, transport_));
    return {};
  }

  const LoadContext& context_;
  Transport* transport_;
  MoeOptions moe_;
  ThreadPool loaders_;
};

using RankExperts = std::vector<std::unique_ptr<MoeLayer>>;

Status load_rank_experts(const LoadContext& context,
                         Transport* transport,
                         const std::shared_ptr<NoticeSink>& notices,
                         RankExperts& experts) {
  MoeOptions moe = context.options.moe;
  moe.workspace = make_moe_workspace();
  moe.notices = notices;
  Status status = RankLoader(context, transport, std::move(moe)).run(experts);
  // The other ranks may be waiting for this one.
  if (!status.ok() && transport != nullptr) transport->abort(status);
  return status;
}

Status load_all_experts(const LoadContext& context,
                        std::span<const std::unique_ptr<Transport>> transports,
                        const std::shared_ptr<NoticeSink>& notices,
                        std::vector<RankExperts>& ranks) {
  if (transports.empty()) return load_rank_experts(context, nullptr, notices, ranks.front());
  FirstFailure failure;
  std::vector<std::thread> threads;
  threads.reserve(transports.size());
  std::exception_ptr refused;
  try {
    for (std::size_t r = 0; r < transports.size(); ++r) {
      threads.emplace_back([&, r] {
        failure.set(load_rank_experts(context, transports[r].get(), notices, ranks[r]));
      });
    }
  } catch (const std::exception& e) {  // no thread, or no memory for one
    refused = std::current_exception();
    transports.front()->abort(Status(StatusCode::kOutOfMemory, e.what()));  // frees who waits
  }
  for (std::thread& thread : threads)
    thread.join();
  if (refused) std::rethrow_exception(refused);
  return failure.take();
}

Result<std::vector<std::optional<ExpertLayerInfo>>> read_expert_layers(CheckpointWeights& weights,
                                                                       ActivationMode mode) {
  std::vector<std::optional<ExpertLayerInfo>> layers;
  for (std::int64_t i = 0; i < weights.config().num_hidden_layers; ++i) {
    if (!is_moe_layer(weights.config(), i)) {
      layers.emplace_back();
      continue;
    }
    HALFBYTE_ASSIGN_OR_RETURN(ExpertLayerInfo info, weights.expert_layer(i, mode));
    layers.emplace_back(std::move(info));
  }
  return layers;
}

// Read when they are used.
Result<std::vector<std::pair<float, float>>> read_kv_scales(CheckpointWeights& weights,
                                                            KvCacheDtype dtype) {
  std::vector<std::pair<float, float>> scales;
  if (dtype != KvCacheDtype::kFp8) return scales;
  for (std::int64_t i = 0; i < weights.config().num_hidden_layers; ++i) {
    HALFBYTE_ASSIGN_OR_RETURN(const auto pair, weights.kv_scales(i));
    scales.push_back(pair);
  }
  return scales;
}

// Enough to open the operations and load; nothing runs.
ModelOptions options_to_check(const ModelConfig& config) {
  ModelOptions options;
  options.dtype = ComputeDtype::kFloat32;
  options.max_context_tokens = config.max_position_embeddings;
  options.kv_cache_blocks = 1;
  options.moe.activation_mode = ActivationMode::kW4a16;
  options.moe.runner_backend = "cpu";
  options.moe.capacity_tokens = 1;
  return options;
}

}  // namespace

Status check_architecture(const ModelConfig& config) {
  HALFBYTE_ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config));
  return architecture->check(config);
}

std::vector<Status> check_model_tensors(CheckpointWeights& weights) {
  const ModelConfig& config = weights.config();
  const ModelOptions options = resolve(options_to_check(config), 1);
  std::vector<Status> faults;
  auto architecture = find_architecture(config);
  auto ops = make_ops(config, options);
  auto layers = read_expert_layers(weights, options.moe.activation_mode);
  if (!architecture.ok()) faults.push_back(architecture.take_status());
  if (!ops.ok()) faults.push_back(ops.take_status());
  if (!layers.ok()) faults.push_back(layers.take_status());
  if (!faults.empty()) return faults;
  faults = SharedWeights::find_faults(weights, **architecture, options, **ops);
  if (!faults.empty()) return faults;
  if (Status status = weights.check_all_consumed(); !status.ok())
    faults.push_back(std::move(status));
  return faults;
}

MoeSpec moe_spec_of(const ModelConfig& config,
                    WeightFormat expert_format,
                    const ModelOptions& options) {
  MoeSpec spec;
  spec.hidden_size = config.hidden_size;
  spec.intermediate_size = config.moe_intermediate_size;
  spec.num_experts = config.num_experts;
  spec.top_k = config.num_experts_per_tok;
  spec.expert_format = expert_format;
  spec.activation = config.activation;
  spec.router = config.router;
  const bool bf16 = options.dtype == ComputeDtype::kBfloat16;
  spec.x_dtype = bf16 ? DType::kBf16 : DType::kF32;
  spec.y_dtype = spec.x_dtype;
  return spec;
}

Result<std::vector<std::unique_ptr<Model>>> load_model(
    CheckpointWeights& weights,
    const ModelOptions& options,
    std::span<const std::unique_ptr<Transport>> transports,
    const std::shared_ptr<NoticeSink>& notices,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const ModelConfig& config = weights.config();
  const std::size_t num_ranks = std::max<std::size_t>(transports.size(), 1);
  const ModelOptions resolved = resolve(options, num_ranks);
  HALFBYTE_RETURN_IF_ERROR(check_options(resolved));
  HALFBYTE_ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(config));
  HALFBYTE_RETURN_IF_ERROR(architecture->check(config));

  std::vector<std::unique_ptr<DenseOps>> ops;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    HALFBYTE_ASSIGN_OR_RETURN(ops.emplace_back(), make_ops(config, resolved));
  }
  LoadContext context = {weights, resolved, progress, {}};
  HALFBYTE_ASSIGN_OR_RETURN(context.layers,
                            read_expert_layers(weights, resolved.moe.activation_mode));
  HALFBYTE_ASSIGN_OR_RETURN(const auto shared,
                            SharedWeights::load(weights, *architecture, resolved, *ops.front()));
  HALFBYTE_ASSIGN_OR_RETURN(const auto kv_scales, read_kv_scales(weights, resolved.kv_cache_dtype));
  std::vector<RankExperts> experts(num_ranks);
  HALFBYTE_RETURN_IF_ERROR(load_all_experts(context, transports, notices, experts));
  HALFBYTE_RETURN_IF_ERROR(weights.check_all_consumed());

  std::vector<std::unique_ptr<Model>> models;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    HALFBYTE_ASSIGN_OR_RETURN(
        models.emplace_back(),
        make_decoder({shared, std::move(experts[r]), std::move(ops[r]), resolved, kv_scales}));
  }
  return models;
}

}  // namespace halfbyte
