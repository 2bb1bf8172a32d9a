// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace halfbyte {
namespace {

// Tokens that are worth waiting a step for instead of computing them twice; SGLang's value.
constexpr std::int64_t kWorthAStep = 32;

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks, bool keeps_prefixes)
    : limits_(limits), blocks_(num_blocks, keeps_prefixes) {
  running_.reserve(static_cast<std::size_t>(limits.max_running_requests));
  slices_.reserve(static_cast<std::size_t>(limits.max_running_requests));
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

const std::vector<ScheduledSlice>& Scheduler::schedule() {
  slices_.clear();
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

// Room for one more position, at the cost of the youngest. False: that was the sequence itself.
bool Scheduler::ensure_block(const Sequence& sequence, std::size_t running_idx) {
  while (!blocks_.grow(running_[running_idx]->block_table, sequence.num_tokens())) {
    const bool was_itself = running_idx + 1 == running_.size();
    preempt_youngest();
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
  while (budget > 0 && !waiting_.empty() && num_running() < limits_.max_running_requests) {
    Sequence& sequence = *waiting_.front();
    if (!take_blocks(sequence)) return;
    note_admission(sequence);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    budget -= schedule_slice(sequence, budget);
  }
}

// A sequence gets the blocks of all its tokens at once. False, and it has none, when it shall wait.
bool Scheduler::take_blocks(Sequence& sequence) {
  blocks_.take_prefix(sequence);
  if (can_admit(sequence)) return blocks_.grow(sequence.block_table, sequence.num_tokens());
  blocks_.release(sequence);
  return false;
}

// Beside the blocks it needs it leaves each running one a block to grow into: otherwise the next
// steps would send it straight back.
bool Scheduler::can_admit(const Sequence& sequence) const {
  const std::int64_t missing =
      blocks_for(sequence.num_tokens()) - static_cast<std::int64_t>(sequence.block_table.size());
  return blocks_.num_free() - missing >= num_running() && !step_computes_prefix_of(sequence);
}

// Tokens that it lacks and a prompt in this step has as well: it finds them after the step.
bool Scheduler::step_computes_prefix_of(const Sequence& sequence) const {
  if (!blocks_.keeps_prefixes()) return false;
  return std::ranges::any_of(slices_, [&sequence](const ScheduledSlice& slice) {
    const std::int64_t computed = slice.sequence->num_cached_tokens + slice.num_tokens;
    if (slice.num_tokens < kWorthAStep) return false;
    if (slice.sequence->cache_salt != sequence.cache_salt) return false;
    const std::int64_t usable = std::min(computed, sequence.num_tokens() - 1);
    const auto end = sequence.tokens.begin() + usable;
    const auto differs =
        std::mismatch(sequence.tokens.begin(), end, slice.sequence->tokens.begin()).first;
    const std::int64_t common =
        (differs - sequence.tokens.begin()) / kKvBlockTokens * kKvBlockTokens;
    return common - sequence.num_cached_tokens >= kWorthAStep;
  });
}

// A sequence that was sent back finds its own blocks: those are no part of the prompt's.
void Scheduler::note_admission(Sequence& sequence) {
  if (std::exchange(sequence.was_admitted, true)) return;
  sequence.num_prefix_tokens = sequence.num_cached_tokens;
  num_prefix_tokens_ += sequence.num_prefix_tokens;
}

std::int64_t Scheduler::schedule_slice(Sequence& sequence, std::int64_t budget) {
  const std::int64_t pending = sequence.num_pending_tokens();
  const std::int64_t count = std::min(pending, budget);
  slices_.push_back({&sequence, count, count == pending});
  return count;
}

const std::vector<ScheduledSlice>& Scheduler::complete_step() {
  for (const ScheduledSlice& slice : slices_) {
    slice.sequence->num_cached_tokens += slice.num_tokens;
    blocks_.keep_prefix(*slice.sequence);
  }
  return slices_;
}

std::unique_ptr<Sequence> Scheduler::remove(RequestId request_id) {
  const auto has_id = [request_id](const auto& sequence) {
    return sequence->request_id == request_id;
  };
  std::unique_ptr<Sequence> removed;
  if (const auto it = std::find_if(running_.begin(), running_.end(), has_id);
      it != running_.end()) {
    removed = std::move(*it);
    running_.erase(it);
    blocks_.release(*removed);
  } else if (const auto queued = std::find_if(waiting_.begin(), waiting_.end(), has_id);
             queued != waiting_.end()) {
    removed = std::move(*queued);
    waiting_.erase(queued);
  }
  return removed;
}

std::unique_ptr<Sequence> Scheduler::remove_any() {
  if (!running_.empty()) return remove(running_.front()->request_id);
  if (!waiting_.empty()) return remove(waiting_.front()->request_id);
  return nullptr;
}

bool Scheduler::preempt_youngest() {
  if (running_.empty()) return false;
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  blocks_.release(*sequence);
  ++num_preemptions_;
  waiting_.push_front(std::move(sequence));
  return true;
}

std::int64_t Scheduler::num_tokens() const {
  std::int64_t total = 0;
  for (const auto& sequence : running_) {
    total += sequence->num_tokens();
  }
  for (const auto& sequence : waiting_) {
    total += sequence->num_tokens();
  }
  return total;
}

std::int64_t Scheduler::num_scheduled_tokens() const {
  std::int64_t total = 0;
  for (const ScheduledSlice& slice : slices_) {
    total += slice.num_tokens;
  }
  return total;
}

}  // namespace halfbyte
