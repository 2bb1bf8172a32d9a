// SPDX-License-Identifier: Apache-2.0
//
// A model whose next token is a hash of all tokens before it, read back through the block table:
// any fault in blocks, chunks, positions or rows changes the answer.
#ifndef HALFBYTE_TESTS_UNIT_ENGINE_FAKE_MODEL_H_
#define HALFBYTE_TESTS_UNIT_ENGINE_FAKE_MODEL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "engine/engine_parts.h"

namespace halfbyte::test {

inline constexpr std::int64_t kFakeVocab = 101;
inline constexpr std::int32_t kFakeEos = 100;

/// Logits after `tokens`: multiples of 1/8, so that equal logits happen.
std::vector<float> fake_logits(std::span<const std::int32_t> tokens);

/// What a test sees of all ranks, and how it makes them fail.
struct FakeControl {
  std::int32_t nan_after_token = -1;  // logits after this token are NaN
  std::function<Status(int rank, const Batch& batch)> before_forward;  // may be null
  std::atomic<std::int64_t> largest_batch{0};
  std::atomic<std::int64_t> num_forwards{0};  // of rank 0
  std::mutex mutex;
  std::set<int> ranks_with_tokens;
};

class FakeModel : public Model {
 public:
  FakeModel(
      int rank, int dp_size, std::int64_t num_blocks, Transport* transport, FakeControl& control);
  const ModelConfig& config() const override { return config_; }
  Status forward(const Batch& batch, std::span<float> logits) override;
  std::string describe_plan() const override { return "fake"; }
  std::string_view backend_name() const override { return "fake"; }
  std::string_view transport_name() const override { return "fake"; }
  ActivationMode activation_mode() const override { return ActivationMode::kW4a16; }
  std::vector<ExpertLoad> expert_load() const override { return {}; }

 private:
  struct Slot {
    std::int32_t token = -1;
    std::int64_t position = -1;
  };
  Status check_tokens_per_rank(const Batch& batch);
  Status write(const Batch& batch, const SequenceSlice& slice);
  Result<std::vector<std::int32_t>> read(const SequenceSlice& slice, std::int64_t num_tokens);

  ModelConfig config_;
  int rank_;
  int dp_size_;
  Transport* transport_;
  FakeControl& control_;
  std::vector<Slot> cache_;
};

struct FakeOptions {
  int num_ranks = 1;
  int dp_size = 1;
  std::int64_t num_blocks = 64;
  std::int64_t max_step_tokens = 64;
  std::int64_t max_prefill_tokens = 64;
  std::int64_t max_running_requests = 16;
  std::int64_t max_context_tokens = 256;
  bool keeps_prefixes = true;
  std::int64_t max_prompt_logit_rows = 1000;
  SchedulePolicy schedule_policy = SchedulePolicy::kLpm;
  std::int64_t num_sampled_ids = 0;
  std::int64_t vocab_size =
      kFakeVocab;  // what the engine is told; another one fails its first step
};

/// An engine on fake models. `control` must outlive it.
std::unique_ptr<Engine> start_fake_engine(const FakeOptions& options, FakeControl& control);

/// What the engine must generate for a request under a constraint, computed alone and without any
/// cache.
std::vector<std::int32_t> expected_tokens(const Request& request,
                                          std::int64_t max_context_tokens,
                                          std::unique_ptr<TokenConstraint> constraint = nullptr);

/// The same request again; it has no constraint.
Request copy_of(const Request& request);

/// A prompt of `length` ids that depends on `seed`.
std::vector<std::int32_t> fake_prompt(std::int64_t length, std::uint32_t seed);
/// A greedy request with such a prompt.
Request make_request(std::int64_t prompt_tokens, std::uint32_t seed, std::int64_t max_new_tokens);

/// Submits them to an idle engine on `control`, whose first step waits for the last one: else each
/// could end before the next one comes. Their ids, in order.
std::vector<RequestId> submit_together(Engine& engine,
                                       FakeControl& control,
                                       const std::vector<Request>& requests);

struct Answer {
  std::vector<std::int32_t> tokens;
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;
  StatusCode error_code = StatusCode::kOk;
  std::int64_t cached_tokens = 0;
  std::vector<std::vector<TokenLogprob>> logprobs;  // of each token
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
};

/// Polls until every id has finished (or 20 s have passed). A second finish of one id fails the
/// test.
std::map<RequestId, Answer> collect(Engine& engine, const std::vector<RequestId>& ids);

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_ENGINE_FAKE_MODEL_H_
