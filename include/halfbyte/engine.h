// SPDX-License-Identifier: Apache-2.0
//
// The engine: loads a checkpoint, decodes many requests together. It speaks token ids only.
#ifndef HALFBYTE_ENGINE_H_
#define HALFBYTE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// Order, per token: logit_bias, penalties, the constraint's mask, (greedy if temperature is 0),
/// temperature, top_k, top_p, min_p, draw.
struct SamplingParams {
  float temperature = 0.0F;  // 0: greedy
  int top_k = 0;             // 0 and -1: all
  float top_p = 1.0F;        // (0, 1]
  float min_p = 0.0F;        // [0, 1]: drops tokens less likely than this part of the likeliest
  std::uint64_t seed = 0;    // the same seed and request give the same tokens
  std::int64_t max_new_tokens = 128;  // 0: the prompt is computed and nothing generated
  std::int64_t min_new_tokens = 0;    // before them no stop id and no end-of-text id is drawn
  std::vector<std::int32_t> stop_token_ids;  // ends the request; reported as the last token
  bool ignore_eos = false;                   // else the model's end-of-text ids stop too
  float presence_penalty = 0.0F;    // [-2, 2], subtracted once from a token of the answer so far
  float frequency_penalty = 0.0F;   // [-2, 2], subtracted once for each time it is there
  float repetition_penalty = 1.0F;  // (0, 2], of prompt and answer: divides a logit above 0, else
                                    // multiplies it
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // id, added; [-100, 100]
  int num_logprobs = -1;  // with each token its logprob and those of the N likeliest; -1: none
  // The same of the prompt's tokens from prompt_logprob_start on, which is at most their number. No
  // position whose logits this needs is taken from the prefix cache.
  int num_prompt_logprobs = -1;
  std::int64_t prompt_logprob_start = 0;
};

/// What may come next in a request: a grammar, a schema. One object serves one request, and the
/// engine calls it from one thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Bit i % 32 of word i / 32 is 1 where token i may come next; `mask` has (vocab_size + 31) / 32
  /// words.
  virtual Status fill_mask(std::span<std::uint32_t> mask) = 0;
  /// Takes the token that was chosen; kInvalidArgument when the mask did not allow it.
  virtual Status accept(std::int32_t token_id) = 0;
  /// Forgets the last `num_tokens` accepted ones.
  virtual void rollback(int num_tokens) = 0;
};

using RequestId = std::uint64_t;

struct Request {
  std::vector<std::int32_t> prompt_ids;
  SamplingParams sampling;
  std::unique_ptr<TokenConstraint> constraint = {};  // null: none
  std::string cache_salt = {};  // requests share cached prefixes only with those of the same salt
};

enum class FinishReason : std::int32_t {
  kNone = 0,
  kStop = 1,
  kLength = 2,
  kCancelled = 3,
  kError = 4
};

struct TokenLogprob {
  std::int32_t token_id = 0;
  float logprob = 0.0F;  // natural; of the model's logits before bias, temperature and truncation
};

/// One step of one request.
struct TokenEvent {
  RequestId request_id = 0;
  std::int32_t token_id = -1;  // -1: no token (cancelled, error, max_new_tokens 0)
  FinishReason finish_reason = FinishReason::kNone;
  std::string error = {};  // with kError
  // With kError; kInvalidArgument: constraint, min_new_tokens and vocabulary leave it no token.
  StatusCode error_code = StatusCode::kOk;
  std::chrono::steady_clock::time_point time = {};  // when the step that made it ended
  std::vector<TokenLogprob> logprobs = {};  // the token's own, then the num_logprobs likeliest
  std::int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache; in every event
  // In the event behind the prompt, if asked for: entry i is of prompt token prompt_logprob_start +
  // i, as `logprobs` is of an answer's. The first token of a prompt follows nothing: no entries.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs = {};
};

/// What activations are rounded to between layers, and how keys and values are stored. kAuto: fp32
/// activations and a bf16 cache.
enum class ComputeDtype : std::int32_t { kAuto = 0, kFloat32 = 1, kBfloat16 = 2 };
enum class KvCacheDtype : std::int32_t { kAuto = 0, kFloat32 = 1, kBfloat16 = 2, kFp8 = 3 };

/// Which waiting request is admitted next. kLpm: the one with the longest cached prefix, but none
/// is overtaken by more than a bounded number of later ones. kFcfs: in the order they came.
enum class SchedulePolicy : std::int32_t { kLpm = 0, kFcfs = 1 };

struct EngineOptions {
  std::string model_path;
  // A JSON object whose members replace those of config.json; a notice names each. Empty: none.
  std::string config_overrides;
  // What the checkpoint's config must say: modelopt_fp4, modelopt_mixed or compressed-tensors.
  // Nothing is read otherwise for it. "auto": whatever it says.
  std::string quantization = "auto";
  MoeOptions moe;
  ActivationMode linear_activation_mode = ActivationMode::kAuto;  // other NVFP4 linears
  ComputeDtype dtype = ComputeDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  std::int64_t max_prefill_tokens = 16384;
  std::int64_t chunked_prefill_size = 0;  // 0: decide
  std::int64_t max_running_requests = 64;
  std::int64_t max_dispatch_tokens_per_rank = 0;  // 0: default of the token budget
  std::int64_t max_context_tokens = 0;            // 0: the model's
  std::int64_t kv_cache_tokens = 0;               // per rank; 0: decide
  // Of the memory that is available at the start, what the files of the weights and the KV cache
  // may take together, (0, 1]: the cache takes what the weights leave, but no more than
  // kv_cache_tokens where those are given. 0: decide.
  double static_memory_fraction = 0.0;
  // Ids from this one on are no tokens and are never drawn: a tokenizer may have fewer than the
  // model has logits. 0: all are tokens.
  std::int64_t num_sampled_ids = 0;
  bool disable_radix_cache = false;  // keep no prefix of a finished request
  SchedulePolicy schedule_policy = SchedulePolicy::kLpm;
  bool ignore_index = false;
  // Latent attention: the norms inside its projections use the model's rms_norm_eps, as SGLang
  // does, instead of 1e-6, as transformers does. They differ where rms_norm_eps is not 1e-6.
  bool latent_norm_uses_config_epsilon = false;
  std::function<void(std::string_view)> notice;  // one line each; may be null
  std::function<void(std::int64_t done, std::int64_t total)> load_progress;  // layers; may be null
};

struct EngineInfo {
  std::string model_name;  // architecture
  std::string backend;
  std::string transport;
  std::string activation_mode;
  int ep_size = 1;
  std::int64_t vocab_size = 0;
  std::int64_t max_context_tokens = 0;
  std::int64_t max_sequence_tokens = 0;  // of one request: the context, or a rank's whole KV cache
  std::vector<std::int32_t> eos_token_ids;
  std::int64_t kv_cache_bytes = 0;   // of all ranks
  double weight_load_seconds = 0.0;  // reading and preparing the weights
  std::int64_t weight_bytes = 0;  // read; prepared layouts of all ranks have as many, and padding
  std::int64_t available_bytes = 0;  // of host memory, before loading; 0: the system does not say
};

/// What a step computes, over all ranks.
struct StepShape {
  std::int64_t num_requests = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
};

struct EngineStats {
  std::int64_t waiting = 0;
  std::int64_t preempted = 0;  // of those that wait: sent back while they ran, or resumed
  std::int64_t running = 0;
  std::int64_t paused = 0;       // neither wait nor run: see set_paused()
  std::int64_t free_blocks = 0;  // a new request can have them: also those of unused prefixes
  std::int64_t total_blocks = 0;
  std::int64_t block_tokens = 0;    // of one block
  std::int64_t prefill_tokens = 0;  // since start
  std::int64_t decode_tokens = 0;
  std::int64_t steps = 0;
  StepShape step;                         // of the one under way, or else the last
  std::int64_t cached_prompt_tokens = 0;  // since start: found in the prefix cache
  std::int64_t evicted_tokens = 0;        // since start: dropped from it for want of blocks
  std::int64_t preemptions = 0;           // since start: running requests sent back to wait
  bool failed = false;                    // requests are refused; submit() tells why
};

/// How often a number was seen since start, in buckets: counts[i] times in (bounds[i - 1],
/// bounds[i]], the last ones above all bounds.
struct Histogram {
  std::vector<double> bounds;        // ascending
  std::vector<std::int64_t> counts;  // [bounds.size() + 1]
  double sum = 0.0;                  // of the numbers
};

struct EngineHistograms {
  Histogram queue_seconds;         // of a request, from submit() to its first step
  Histogram step_tokens;           // computed in a step, by all ranks
  Histogram prefill_step_seconds;  // steps of prompts only,
  Histogram decode_step_seconds;   // of running answers only,
  Histogram mixed_step_seconds;    // and of both
  Histogram step_host_seconds;     // of every step, outside its forward pass: schedule and sample
};

/// How one MoE layer's experts were used since start, over all ranks: a token counts once for each
/// of its experts, whatever the ranks. All zero on a CUDA device.
struct ExpertLoad {
  std::int64_t layer_idx = 0;  // in the model, where dense layers count too
  MoeCounters counters;
  std::vector<std::int64_t> rank_dispatch_bytes = {};  // of each rank's counters
};

/// Runs on a thread of its own from create() to destruction. Every member may be called from any
/// thread. A failure of the device or of a rank ends all requests with kError events and refuses
/// later ones with its cause.
class Engine {
 public:
  /// Reads the checkpoint, decides every size, loads, and starts the engine's thread.
  ///
  /// @return kNotFound: no such directory, shard or tensor; kCorruptData: a file that is not what
  ///         it says, with the tensors' names; kUnsupported: an architecture, a format or options
  ///         that nothing here can run, with the reasons; kInvalidArgument: options contradict,
  ///         with the remedy; kOutOfMemory.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. kInvalidArgument: empty prompt, an id outside the vocabulary, a prompt that
  /// does not fit, a sampling parameter out of range; kDeviceError and the cause once failed.
  Result<RequestId> submit(Request request);
  /// Events since the last call, in order; waits up to `timeout_ms` for the first. Empty: none
  /// came.
  std::vector<TokenEvent> poll(int timeout_ms);
  /// Frees the request's blocks within one step; its last event is kCancelled. Unknown ids: no
  /// effect.
  void cancel(RequestId request_id);

  /// Takes a request out of the steps, or in again. Meanwhile it holds neither blocks nor a place
  /// among those that run, and computes again what the prefix cache has lost, so no token changes,
  /// its own or another's. No effect on one that waits for its first step, and on unknown ids.
  void set_paused(RequestId request_id, bool paused);

  /// Forgets the cached prefixes that no running request uses, before the next step.
  void flush_cache();

  /// Logits of every position of one sequence, fp32 [ids, vocab]; for checks, outside any batch.
  /// Waits for the step under way. Errors: those of submit(), and kOutOfMemory.
  Result<std::vector<float>> score(const std::vector<std::int32_t>& ids);

  const EngineInfo& info() const;
  EngineStats stats() const;
  EngineHistograms histograms() const;
  /// Of every MoE layer, in their order. A read takes no lock and never waits for a step; a step
  /// pays for the counts with one addition for each expert that it uses, read or not.
  std::vector<ExpertLoad> expert_load() const;

 private:
  friend class EngineFactory;  // inside the library: starts one on a model that is loaded already
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_H_
