// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace halfbyte {
namespace {

// Waiting requests that kLpm looks at: the cost of a step is bounded however many wait.
constexpr std::int64_t kLpmWindow = 128;

// Tokens that are worth waiting a step for instead of computing them twice; SGLang's value.
constexpr std::int64_t kWorthAStep = 32;

// Null when it is not there.
template <typename Sequences>
std::unique_ptr<Sequence> take_out(Sequences& sequences, RequestId request_id) {
  const auto found = std::ranges::find_if(
      sequences, [request_id](const auto& sequence) { return sequence->request_id == request_id; });
  if (found == sequences.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(*found);
  sequences.erase(found);
  return sequence;
}

template <typename Sequences>
std::int64_t count_tokens(const Sequences& sequences) {
  std::int64_t total = 0;
  for (const std::unique_ptr<Sequence>& sequence : sequences) {
    total += sequence->num_tokens();
  }
  return total;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits,
                     std::int64_t num_blocks,
                     bool keeps_prefixes,
                     SchedulePolicy policy)
    : limits_(limits), policy_(policy), blocks_(num_blocks, keeps_prefixes) {
  running_.reserve(static_cast<std::size_t>(limits.max_running_requests));
  slices_.reserve(static_cast<std::size_t>(limits.max_running_requests));
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

const std::vector<ScheduledSlice>& Scheduler::schedule() {
  slices_.clear();
  prompt_rows_left_ = limits_.max_prompt_logit_rows;
  schedule_decodes();
  std::int64_t budget =
      std::min(limits_.max_step_tokens - num_scheduled_tokens(), limits_.max_prefill_tokens);
  const std::int64_t decode_tokens = num_scheduled_tokens();
  schedule_prefills(budget);
  budget -= num_scheduled_tokens() - decode_tokens;
  admit(budget);
  return slices_;
}

void Scheduler::schedule_decodes() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.num_pending_tokens() != 1) continue;
    if (ensure_block(sequence, i)) schedule_slice(sequence, 1);
  }
}

// Room for one more position, at the cost of the last. False: that was the sequence itself.
bool Scheduler::ensure_block(const Sequence& sequence, std::size_t running_idx) {
  while (!blocks_.grow(running_[running_idx]->block_table, sequence.num_tokens())) {
    const bool was_itself = running_idx + 1 == running_.size();
    preempt_last();
    if (was_itself) return false;
  }
  return true;
}

void Scheduler::schedule_prefills(std::int64_t budget) {
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (budget == 0) return;
    if (sequence->num_pending_tokens() > 1) budget -= schedule_slice(*sequence, budget);
  }
}

void Scheduler::admit(std::int64_t budget) {
  while (budget > 0 && num_running() < limits_.max_running_requests) {
    Queue& queue = preempted_.empty() ? waiting_ : preempted_;
    const auto chosen = choose(queue);
    if (chosen == queue.end() || !take_blocks(**chosen)) return;
    Sequence& sequence = **chosen;
    if (&queue == &waiting_) note_admission(chosen);
    running_.push_back(std::move(*chosen));
    queue.erase(chosen);
    budget -= schedule_slice(sequence, budget);
  }
}

// Which one is admitted next if there is room for it; the end: none in this step.
Scheduler::Queue::iterator Scheduler::choose(Queue& queue) {
  if (queue.empty()) return queue.end();
  Sequence& first = *queue.front();
  const bool compares =
      &queue == &waiting_ && policy_ == SchedulePolicy::kLpm && blocks_.keeps_prefixes();
  if (compares && first.num_overtakes < kMaxOvertakes) return choose_longest_prefix();
  const bool waits = step_computes_prefix_of(first, blocks_.match_prefix(first));
  return waits ? queue.end() : queue.begin();
}

Scheduler::Queue::iterator Scheduler::choose_longest_prefix() {
  const auto end = waiting_.begin() + std::min(std::ssize(waiting_), kLpmWindow);
  auto best = waiting_.end();
  std::int64_t most = -1;
  for (auto it = waiting_.begin(); it != end; ++it) {
    const std::int64_t num_found = blocks_.match_prefix(**it);
    if (num_found <= most || step_computes_prefix_of(**it, num_found)) continue;
    best = it;
    most = num_found;
  }
  return best;
}

// A sequence gets the blocks of all its tokens at once. False, and it has none, when they are not
// to be had.
bool Scheduler::take_blocks(Sequence& sequence) {
  blocks_.take_prefix(sequence);
  if (has_room(sequence)) return blocks_.grow(sequence.block_table, sequence.num_tokens());
  blocks_.release(sequence);
  return false;
}

// Beside the blocks it needs it leaves each running one a block to grow into: otherwise the next
// steps would send it straight back.
bool Scheduler::has_room(const Sequence& sequence) const {
  const std::int64_t missing =
      blocks_for(sequence.num_tokens()) - static_cast<std::int64_t>(sequence.block_table.size());
  return blocks_.num_free() - missing >= num_running();
}

// Tokens behind the `num_found` in the cache that a prompt in this step has as well: the sequence
// finds them after the step.
bool Scheduler::step_computes_prefix_of(const Sequence& sequence, std::int64_t num_found) const {
  if (!blocks_.keeps_prefixes()) return false;
  return std::ranges::any_of(slices_, [&sequence, num_found](const ScheduledSlice& slice) {
    const std::int64_t computed = slice.sequence->num_cached_tokens + slice.num_tokens;
    if (slice.num_tokens < kWorthAStep) return false;
    if (slice.sequence->cache_salt != sequence.cache_salt) return false;
    const std::int64_t usable = std::min(computed, sequence.num_reusable_tokens());
    const auto end = sequence.tokens.begin() + usable;
    const auto differs =
        std::mismatch(sequence.tokens.begin(), end, slice.sequence->tokens.begin()).first;
    const std::int64_t common =
        (differs - sequence.tokens.begin()) / kKvBlockTokens * kKvBlockTokens;
    return common - num_found >= kWorthAStep;
  });
}

// Of one that never ran: a sequence that was preempted finds its own blocks, which are no part of
// the prompt's.
void Scheduler::note_admission(const Queue::iterator& chosen) {
  std::for_each(waiting_.begin(), chosen, [](const auto& earlier) { ++earlier->num_overtakes; });
  Sequence& sequence = **chosen;
  sequence.num_prefix_tokens = sequence.num_cached_tokens;
  num_prefix_tokens_ += sequence.num_prefix_tokens;
}

// As many of its pending tokens as the budget and the rows that are left allow; their number. The
// rows of an unscored prompt are the last ones before its end, so a slice has them last.
std::int64_t Scheduler::schedule_slice(Sequence& sequence, std::int64_t budget) {
  const std::int64_t pending = sequence.num_pending_tokens();
  const std::int64_t num_unscored = sequence.num_unscored_tokens;
  const std::int64_t before_rows = sequence.first_unscored_row() - sequence.num_cached_tokens;
  std::int64_t count = std::min(pending, budget);
  if (num_unscored > prompt_rows_left_) count = std::min(count, before_rows + prompt_rows_left_);
  if (count == 0) return 0;
  const auto num_rows = std::clamp<std::int64_t>(count - before_rows, 0, num_unscored);
  prompt_rows_left_ -= num_rows;
  slices_.push_back({&sequence, count, count == pending, num_rows});
  return count;
}

const std::vector<ScheduledSlice>& Scheduler::complete_step() {
  for (const ScheduledSlice& slice : slices_) {
    slice.sequence->num_cached_tokens += slice.num_tokens;
    slice.sequence->num_unscored_tokens -= slice.num_prompt_rows;
    blocks_.keep_prefix(*slice.sequence);
  }
  return slices_;
}

std::unique_ptr<Sequence> Scheduler::remove(RequestId request_id) {
  if (auto sequence = take_out(running_, request_id)) {
    blocks_.release(*sequence);
    return sequence;
  }
  for (Queue* queue : {&preempted_, &waiting_, &paused_}) {
    if (auto sequence = take_out(*queue, request_id)) return sequence;
  }
  return nullptr;
}

std::unique_ptr<Sequence> Scheduler::remove_any() {
  if (!running_.empty()) return remove(running_.front()->request_id);
  for (const Queue* queue : {&preempted_, &waiting_, &paused_}) {
    if (!queue->empty()) return remove(queue->front()->request_id);
  }
  return nullptr;
}

void Scheduler::pause(RequestId request_id) {
  std::unique_ptr<Sequence> sequence = take_out(running_, request_id);
  if (sequence != nullptr) {
    blocks_.release(*sequence);
  } else {
    sequence = take_out(preempted_, request_id);
  }
  if (sequence != nullptr) paused_.push_back(std::move(sequence));
}

void Scheduler::resume(RequestId request_id) {
  if (auto sequence = take_out(paused_, request_id)) preempted_.push_back(std::move(sequence));
}

bool Scheduler::preempt_last() {
  if (running_.empty()) return false;
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  blocks_.release(*sequence);
  ++num_preemptions_;
  preempted_.push_front(std::move(sequence));
  return true;
}

std::int64_t Scheduler::num_tokens() const {
  return count_tokens(running_) + count_tokens(preempted_) + count_tokens(waiting_) +
         count_tokens(paused_);
}

std::int64_t Scheduler::num_scheduled_tokens() const {
  std::int64_t total = 0;
  for (const ScheduledSlice& slice : slices_) {
    total += slice.num_tokens;
  }
  return total;
}

}  // namespace halfbyte
