// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/no_throw.h"
#include "engine/logprobs.h"
#include "engine/request_validation.h"

namespace halfbyte {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status shut_down() {
  return {StatusCode::kCancelled, "the engine is shutting down"};
}

Status allocate(std::vector<float>& logits,
                std::int64_t rows,
                std::int64_t vocab_size,
                std::string_view remedy) {
  const auto size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab_size);
  Status status = no_throw([&]() -> Status {
    logits.resize(size);
    return {};
  });
  if (status.ok()) return {};
  return std::move(status).with_context(
      fmt::format("the logits of {} tokens ({} bytes): {}", rows, size * sizeof(float), remedy));
}

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

TokenEvent event_of(const Sequence& sequence, FinishReason reason) {
  return {.request_id = sequence.request_id,
          .finish_reason = reason,
          .cached_tokens = sequence.num_prefix_tokens};
}

void add_stats(const Scheduler& scheduler, EngineStats& stats) {
  stats.running += scheduler.num_running();
  stats.waiting += scheduler.num_waiting();
  stats.preempted += scheduler.num_preempted();
  stats.paused += scheduler.num_paused();
  stats.free_blocks += scheduler.blocks().num_free();
  stats.total_blocks += scheduler.blocks().num_blocks();
  stats.cached_prompt_tokens += scheduler.num_prefix_tokens();
  stats.evicted_tokens += scheduler.blocks().num_evicted() * kKvBlockTokens;
  stats.preemptions += scheduler.num_preemptions();
}

// Nothing comes before the first token of a prompt that could tell how likely it was.
void want_prompt_logprobs(Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  if (params.num_prompt_logprobs < 0) return;
  if (params.prompt_logprob_start == 0) sequence.prompt_logprobs.emplace_back();
  sequence.num_unscored_tokens =
      sequence.num_prompt_tokens - std::max<std::int64_t>(params.prompt_logprob_start, 1);
}

FinishReason finish_reason_of(const Sequence& sequence) {
  if (contains(sequence.end_token_ids, sequence.tokens.back())) return FinishReason::kStop;
  return sequence.num_tokens() >= sequence.max_total_tokens ? FinishReason::kLength
                                                            : FinishReason::kNone;
}

}  // namespace

EngineLoop::EngineLoop(EngineParts parts)
    : info_(std::move(parts.info)),
      limits_(parts.limits),
      num_blocks_(parts.num_blocks),
      ranks_(std::move(parts.models), std::move(parts.transports), parts.dp_size),
      selector_(parts.num_sampled_ids) {
  const auto dp_size = static_cast<std::size_t>(parts.dp_size);
  for (std::size_t dp_rank = 0; dp_rank < dp_size; ++dp_rank) {
    schedulers_.emplace_back(limits_, num_blocks_, parts.keeps_prefixes, parts.schedule_policy);
  }
  logits_.resize(dp_size);
  counted_.block_tokens = kKvBlockTokens;
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  inbox_filled_.notify_all();
  ranks_.stop(shut_down());  // a step that waits for a peer ends now
  thread_.join();
}

// ---------------------------------------------------------------- any thread

// Ok, or why nothing new is taken. Call with mutex_ held.
Status EngineLoop::refusal() const {
  if (!failure_.ok()) {
    return {StatusCode::kDeviceError,
            fmt::format("the engine has failed and takes no requests: {}", failure_.to_string())};
  }
  return stopping_ ? shut_down() : Status();
}

// After a constraint's last token only an end of text may come, so that ends it also if ignore_eos.
std::unique_ptr<Sequence> EngineLoop::make_sequence(Request request) const {
  auto sequence = std::make_unique<Sequence>();
  sequence->num_prompt_tokens = static_cast<std::int64_t>(request.prompt_ids.size());
  sequence->max_total_tokens = sequence->num_prompt_tokens +
                               std::min(request.sampling.max_new_tokens,
                                        info_.max_context_tokens - sequence->num_prompt_tokens);
  sequence->tokens = std::move(request.prompt_ids);
  sequence->end_token_ids = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos || request.constraint) {
    sequence->end_token_ids.insert(sequence->end_token_ids.end(), info_.eos_token_ids.begin(),
                                   info_.eos_token_ids.end());
  }
  sequence->sampling = std::move(request.sampling);
  sequence->constraint = std::move(request.constraint);
  sequence->cache_salt = std::move(request.cache_salt);
  sequence->queued_since = Clock::now();
  want_prompt_logprobs(*sequence);
  return sequence;
}

Result<RequestId> EngineLoop::submit(Request request) {
  HALFBYTE_RETURN_IF_ERROR(validate_request(request, info_, num_blocks_));
  std::unique_ptr<Sequence> sequence = make_sequence(std::move(request));
  const std::lock_guard lock(mutex_);
  HALFBYTE_RETURN_IF_ERROR(refusal());
  const RequestId request_id = next_request_id_++;
  sequence->request_id = request_id;
  inbox_.requests.push_back(std::move(sequence));
  ++stats_.waiting;
  inbox_filled_.notify_one();
  return request_id;
}

std::vector<TokenEvent> EngineLoop::poll(int timeout_ms) {
  std::unique_lock lock(mutex_);
  events_added_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                         [this] { return !events_.empty(); });
  return std::exchange(events_, {});
}

void EngineLoop::cancel(RequestId request_id) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;  // it has ended already
  inbox_.cancelled.push_back(request_id);
  inbox_filled_.notify_one();
}

void EngineLoop::set_paused(RequestId request_id, bool paused) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;  // it has ended already
  inbox_.paused.emplace_back(request_id, paused);
  inbox_filled_.notify_one();
}

void EngineLoop::flush_cache() {
  const std::lock_guard lock(mutex_);
  inbox_.flushes_cache = true;
  inbox_filled_.notify_one();
}

Result<std::vector<float>> EngineLoop::score(const std::vector<std::int32_t>& ids) {
  HALFBYTE_RETURN_IF_ERROR(validate_ids(ids, info_.vocab_size));
  const auto num_tokens = static_cast<std::int64_t>(ids.size());
  if (num_tokens > info_.max_context_tokens || blocks_for(num_tokens) > num_blocks_) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{} tokens to score, want at most {}: the context, or what {} cache "
                    "blocks hold",
                    num_tokens, std::min(info_.max_context_tokens, num_blocks_ * kKvBlockTokens),
                    num_blocks_));
  }
  ScoreJob job{ids, {}, {}};
  HALFBYTE_RETURN_IF_ERROR(
      allocate(job.logits, num_tokens, info_.vocab_size, "score a shorter sequence"));
  std::future<Result<std::vector<float>>> answer = job.answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    HALFBYTE_RETURN_IF_ERROR(refusal());
    inbox_.scores.push_back(std::move(job));
    inbox_filled_.notify_one();
  }
  return answer.get();
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

EngineHistograms EngineLoop::histograms() const {
  const std::lock_guard lock(mutex_);
  return histograms_;
}

// ---------------------------------------------------------------- the loop's thread

void EngineLoop::run() {
  Inbox inbox;
  Status status;
  while (status.ok() && take_inbox(inbox)) {
    status = handle_inbox(inbox);
    if (status.ok()) status = no_throw([this] { return step(); });
    if (status.ok()) publish();
  }
  end_everything(status.ok() ? shut_down() : std::move(status));
}

// Waits for something to do; false when the engine is being destroyed.
bool EngineLoop::take_inbox(Inbox& inbox) {
  std::unique_lock lock(mutex_);
  inbox_filled_.wait(lock, [this] { return stopping_ || !inbox_.empty() || has_work(); });
  if (stopping_) return false;
  inbox = std::exchange(inbox_, {});
  return true;
}

bool EngineLoop::has_work() const {
  return std::any_of(schedulers_.begin(), schedulers_.end(),
                     [](const auto& s) { return s.has_work(); });
}

Status EngineLoop::handle_inbox(Inbox& inbox) {
  if (inbox.flushes_cache) {
    for (Scheduler& scheduler : schedulers_) {
      scheduler.blocks().forget_prefixes();
    }
  }
  for (std::unique_ptr<Sequence>& sequence : inbox.requests) {
    assign(std::move(sequence));
  }
  for (const auto& [request_id, paused] : inbox.paused) {
    pause_now(request_id, paused);
  }
  for (const RequestId request_id : inbox.cancelled) {
    cancel_now(request_id);
  }
  Status status;
  for (ScoreJob& job : inbox.scores) {
    if (status.ok()) status = run_score(job);
    if (status.ok()) {
      job.answer.set_value(std::move(job.logits));
    } else {
      job.answer.set_value(status.clone());
    }
  }
  inbox = {};
  return status;
}

// To the data-parallel rank that has the fewest tokens, less those of this sequence that its prefix
// cache has; the lowest of equals. So a prefix draws requests to its rank until that has more to do
// than the others by what the prefix saves.
void EngineLoop::assign(std::unique_ptr<Sequence> sequence) {
  const auto cost = [&sequence](const Scheduler& scheduler) {
    return scheduler.num_tokens() - scheduler.blocks().num_prefix_tokens(*sequence);
  };
  const auto target = std::ranges::min_element(schedulers_, {}, cost);
  target->add(std::move(sequence));
}

void EngineLoop::pause_now(RequestId request_id, bool paused) {
  for (Scheduler& scheduler : schedulers_) {
    if (paused) {
      scheduler.pause(request_id);
    } else {
      scheduler.resume(request_id);
    }
  }
}

void EngineLoop::cancel_now(RequestId request_id) {
  for (Scheduler& scheduler : schedulers_) {
    const std::unique_ptr<Sequence> sequence = scheduler.remove(request_id);
    if (sequence == nullptr) continue;
    new_events_.push_back(event_of(*sequence, FinishReason::kCancelled));
    return;
  }
}

Status EngineLoop::step() {
  if (!has_work()) return {};
  const Clock::time_point start = Clock::now();
  const std::vector<RankBatch> batches = schedule();
  publish_shape();
  const Clock::time_point forward_start = Clock::now();
  HALFBYTE_RETURN_IF_ERROR(forward(batches));
  const double forward_seconds = seconds_since(forward_start);
  ++counted_.steps;
  counted_.prefill_tokens += counted_.step.prefill_tokens;
  counted_.decode_tokens += counted_.step.decode_tokens;
  for (std::size_t dp_rank = 0; dp_rank < schedulers_.size(); ++dp_rank) {
    accept_logits(dp_rank, schedulers_[dp_rank].complete_step());
  }
  recorder_.add_step(counted_.step, seconds_since(start), forward_seconds);
  return {};
}

// The step's batch of each data-parallel rank.
std::vector<RankBatch> EngineLoop::schedule() {
  counted_.step = {};
  std::vector<RankBatch> batches;
  for (Scheduler& scheduler : schedulers_) {
    const std::span<const ScheduledSlice> slices = scheduler.schedule();
    note_first_steps(slices);
    note_shape(slices);
    batches.push_back(make_rank_batch(slices));
  }
  return batches;
}

void EngineLoop::note_first_steps(std::span<const ScheduledSlice> slices) {
  for (const ScheduledSlice& slice : slices) {
    const auto queued_since = std::exchange(slice.sequence->queued_since, std::nullopt);
    if (queued_since) recorder_.add_queue_time(seconds_since(*queued_since));
  }
}

void EngineLoop::note_shape(std::span<const ScheduledSlice> slices) {
  StepShape& shape = counted_.step;
  for (const ScheduledSlice& slice : slices) {
    const bool decodes =
        slice.num_tokens == 1 && slice.sequence->num_tokens() > slice.sequence->num_prompt_tokens;
    (decodes ? shape.decode_tokens : shape.prefill_tokens) += slice.num_tokens;
    ++shape.num_requests;
  }
}

// Before the forward pass: whoever waits for it can tell what it computes.
void EngineLoop::publish_shape() {
  const std::lock_guard lock(mutex_);
  stats_.step = counted_.step;
}

Status EngineLoop::forward(std::span<const RankBatch> batches) {
  std::vector<std::span<float>> logits;
  std::int64_t num_tokens = 0;
  for (std::size_t dp_rank = 0; dp_rank < batches.size(); ++dp_rank) {
    const RankBatch& batch = batches[dp_rank];
    HALFBYTE_RETURN_IF_ERROR(allocate(logits_[dp_rank],
                                      static_cast<std::int64_t>(batch.logit_rows.size()),
                                      info_.vocab_size, "lower --max-running-requests"));
    logits.emplace_back(logits_[dp_rank]);
    num_tokens += batch.num_tokens();
  }
  if (num_tokens == 0) {
    return {StatusCode::kInternal, "requests wait and none fits a step: the scheduler is wrong"};
  }
  return ranks_.step(batches, logits);
}

void EngineLoop::accept_logits(std::size_t dp_rank, std::span<const ScheduledSlice> slices) {
  std::span<const float> logits = logits_[dp_rank];
  for (const ScheduledSlice& slice : slices) {
    const auto size = static_cast<std::size_t>(slice.num_logit_rows() * info_.vocab_size);
    if (size > 0) accept_rows(schedulers_[dp_rank], slice, logits.first(size));
    logits = logits.subspan(size);
  }
}

// One slice's `logits`: those of its prompt rows first. A prompt that cannot be scored ends its own
// request only.
void EngineLoop::accept_rows(Scheduler& scheduler,
                             const ScheduledSlice& slice,
                             std::span<const float> logits) {
  Sequence& sequence = *slice.sequence;
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  const auto prompt_logits = logits.first(static_cast<std::size_t>(slice.num_prompt_rows) * vocab);
  Status scored = add_prompt_logprobs(prompt_logits, vocab, sequence);
  if (!scored.ok()) return accept_token(scheduler, sequence, std::move(scored));
  if (!slice.ends_sequence) return;
  if (sequence.num_tokens() == sequence.max_total_tokens) {
    return end_behind_prompt(scheduler, sequence);
  }
  accept_token(scheduler, sequence, selector_.select(logits.last(vocab), sequence));
}

// max_new_tokens is 0.
void EngineLoop::end_behind_prompt(Scheduler& scheduler, Sequence& sequence) {
  TokenEvent& event = new_events_.emplace_back(event_of(sequence, FinishReason::kLength));
  event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  scheduler.remove(sequence.request_id);
}

// A token that cannot be chosen ends its own request only.
void EngineLoop::accept_token(Scheduler& scheduler,
                              Sequence& sequence,
                              Result<SelectedToken> selected) {
  TokenEvent event = event_of(sequence, FinishReason::kError);
  if (selected.ok()) {
    sequence.tokens.push_back(selected->token_id);
    event.token_id = selected->token_id;
    event.logprobs = std::move(selected->logprobs);
    event.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
    event.finish_reason = finish_reason_of(sequence);
  } else {
    event.error = selected.status().to_string();
    event.error_code = selected.status().code();
  }
  if (event.finish_reason != FinishReason::kNone) scheduler.remove(sequence.request_id);
  new_events_.push_back(std::move(event));
}

// A score must not wait for a whole answer, so running requests give up their blocks if they have
// to; they are computed again without a changed token.
Status EngineLoop::run_score(ScoreJob& job) {
  Scheduler& scheduler = schedulers_.front();
  std::vector<std::int32_t> block_table;
  while (!scheduler.blocks().grow(block_table, static_cast<std::int64_t>(job.ids.size()))) {
    if (!scheduler.preempt_last()) {
      return {StatusCode::kInternal, "an empty KV cache has too few blocks: they were lost"};
    }
  }
  Status status = score_chunks(job, block_table);
  scheduler.blocks().release(block_table);
  return status;
}

Status EngineLoop::score_chunks(ScoreJob& job, std::span<const std::int32_t> block_table) {
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  const auto max_chunk =
      static_cast<std::size_t>(std::min(limits_.max_step_tokens, limits_.max_prefill_tokens));
  const std::span<const std::int32_t> ids = job.ids;
  const std::span<float> rows = job.logits;
  for (std::size_t done = 0; done < ids.size(); done += max_chunk) {
    const std::size_t count = std::min(max_chunk, ids.size() - done);
    std::vector<RankBatch> batches(schedulers_.size());
    std::vector<std::span<float>> logits(schedulers_.size());
    RankBatch& batch = batches.front();
    batch.add(ids.subspan(done, count), static_cast<std::int64_t>(done), block_table,
              static_cast<std::int64_t>(count));
    logits.front() = rows.subspan(done * vocab, count * vocab);
    HALFBYTE_RETURN_IF_ERROR(ranks_.step(batches, logits));
  }
  return {};
}

// Hands events and numbers to the other threads.
void EngineLoop::publish() {
  EngineStats stats = counted_;
  for (const Scheduler& scheduler : schedulers_) {
    add_stats(scheduler, stats);
  }
  const std::lock_guard lock(mutex_);
  stats_ = stats;
  histograms_ = recorder_.histograms();
  stats_.waiting += static_cast<std::int64_t>(inbox_.requests.size());
  const auto now = std::chrono::steady_clock::now();
  for (TokenEvent& event : new_events_)
    event.time = now;
  events_.insert(events_.end(), std::make_move_iterator(new_events_.begin()),
                 std::make_move_iterator(new_events_.end()));
  new_events_.clear();
  if (!events_.empty()) events_added_.notify_all();
}

// The last thing the thread does: every request and every score in progress ends with `why`, which
// also refuses what comes later.
void EngineLoop::end_everything(const Status& why) {
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why.clone();
    inbox = std::exchange(inbox_, {});
  }
  counted_.failed = true;
  for (std::unique_ptr<Sequence>& sequence : inbox.requests) {
    assign(std::move(sequence));
  }
  for (Scheduler& scheduler : schedulers_) {
    while (const std::unique_ptr<Sequence> sequence = scheduler.remove_any()) {
      TokenEvent& event = new_events_.emplace_back(event_of(*sequence, FinishReason::kError));
      event.error = why.to_string();
      event.error_code = why.code();
    }
  }
  for (ScoreJob& job : inbox.scores) {
    job.answer.set_value(why.clone());
  }
  publish();
}

}  // namespace halfbyte
