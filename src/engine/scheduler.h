// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_SCHEDULER_H_
#define HALFBYTE_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "engine/sequence.h"
#include "engine/sequence_blocks.h"

namespace halfbyte {

struct SchedulerLimits {
  std::int64_t max_step_tokens = 0;       // tokens of one forward: TokenBudget::max_forward_tokens
  std::int64_t max_prefill_tokens = 0;    // of them, prefill: the chunk
  std::int64_t max_running_requests = 0;  // at most max_step_tokens, so every decode fits a step
  // Of a step's prompt tokens, those whose logits are kept for their logprobs; at least 1.
  std::int64_t max_prompt_logit_rows = std::numeric_limits<std::int64_t>::max();
};

/// Later requests that may be admitted before a waiting one, under SchedulePolicy::kLpm.
inline constexpr std::int64_t kMaxOvertakes = 64;

/// What one sequence contributes to a step: its next `num_tokens` pending tokens.
struct ScheduledSlice {
  Sequence* sequence = nullptr;
  std::int64_t num_tokens = 0;
  bool ends_sequence = false;  // the last pending token is in it: its logits give the next token
  std::int64_t num_prompt_rows = 0;  // of them, the last but that: logits for prompt logprobs

  /// Its last tokens, whose logits the model is asked for.
  std::int64_t num_logit_rows() const { return num_prompt_rows + (ends_sequence ? 1 : 0); }
};

/// Waiting and running sequences of one data-parallel rank, and that rank's cache blocks.
///
/// A step takes every running sequence that decodes, first admitted first; then unfinished prompts;
/// then it admits waiting requests. When a decode needs a block and none is free, the running
/// sequence that was admitted last is preempted: it waits before all that never ran, and is
/// computed again later; what it has generated is kept, so its client notices only time. The first
/// is never preempted and every request fits the cache alone, so each one finishes.
///
/// An admitted sequence starts behind the longest prefix in the prefix cache, and its blocks enter
/// that as they fill. kFcfs admits in the order of arrival. kLpm takes, of the first few in that
/// order, the one that finds most, the older of equals; but one that kMaxOvertakes later ones have
/// overtaken is next. If there is no room for the one that is next, none is admitted. While a step
/// computes what a request could find afterwards, that one waits; each time it finds more, so it
/// does not wait long. Thread rule: the engine thread.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits,
            std::int64_t num_blocks,
            bool keeps_prefixes,
            SchedulePolicy policy = SchedulePolicy::kLpm);

  void add(std::unique_ptr<Sequence> sequence);
  /// Chooses the next step. The view lives until the next call; no token is marked as computed.
  const std::vector<ScheduledSlice>& schedule();
  /// Marks the tokens of the last schedule() as cached, and returns it again.
  const std::vector<ScheduledSlice>& complete_step();
  /// Takes a sequence out, wherever it is, and frees its blocks; null for an unknown id.
  std::unique_ptr<Sequence> remove(RequestId request_id);
  /// Takes any one sequence out; null when there is none.
  std::unique_ptr<Sequence> remove_any();
  /// Sets a sequence that has run aside, and frees its blocks; no effect on others.
  void pause(RequestId request_id);
  /// Lets one that was set aside wait, behind those that were preempted.
  void resume(RequestId request_id);
  /// Preempts the sequence that was admitted last. False when none runs.
  bool preempt_last();

  /// False also when all that is left is paused.
  bool has_work() const { return num_waiting() + num_running() > 0; }
  std::int64_t num_waiting() const { return std::ssize(waiting_) + num_preempted(); }
  /// Of those that wait: they have run before, until they were preempted or paused.
  std::int64_t num_preempted() const { return std::ssize(preempted_); }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t num_paused() const { return std::ssize(paused_); }
  /// Tokens of all its sequences; what the assignment to ranks compares.
  std::int64_t num_tokens() const;
  /// Since start: preemptions, and prompt tokens that the prefix cache had.
  std::int64_t num_preemptions() const { return num_preemptions_; }
  std::int64_t num_prefix_tokens() const { return num_prefix_tokens_; }
  SequenceBlocks& blocks() { return blocks_; }
  const SequenceBlocks& blocks() const { return blocks_; }

 private:
  using Queue = std::deque<std::unique_ptr<Sequence>>;

  void schedule_decodes();
  void schedule_prefills(std::int64_t budget);
  void admit(std::int64_t budget);
  Queue::iterator choose(Queue& queue);
  Queue::iterator choose_longest_prefix();
  bool take_blocks(Sequence& sequence);
  bool has_room(const Sequence& sequence) const;
  bool step_computes_prefix_of(const Sequence& sequence, std::int64_t num_found) const;
  void note_admission(const Queue::iterator& chosen);
  bool ensure_block(const Sequence& sequence, std::size_t running_idx);
  std::int64_t schedule_slice(Sequence& sequence, std::int64_t budget);
  std::int64_t num_scheduled_tokens() const;

  SchedulerLimits limits_;
  SchedulePolicy policy_;
  SequenceBlocks blocks_;
  Queue waiting_;    // never admitted, by arrival
  Queue preempted_;  // by admission, all behind running_, then those that were resumed
  std::vector<std::unique_ptr<Sequence>> running_;  // by admission, the first or after a pause
  Queue paused_;
  std::vector<ScheduledSlice> slices_;
  std::int64_t prompt_rows_left_ = 0;  // of the step's max_prompt_logit_rows
  std::int64_t num_preemptions_ = 0;
  std::int64_t num_prefix_tokens_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SCHEDULER_H_
