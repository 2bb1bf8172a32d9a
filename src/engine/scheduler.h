// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_SCHEDULER_H_
#define HALFBYTE_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/sequence.h"
#include "engine/sequence_blocks.h"

namespace halfbyte {

struct SchedulerLimits {
  std::int64_t max_step_tokens = 0;       // tokens of one forward: TokenBudget::max_forward_tokens
  std::int64_t max_prefill_tokens = 0;    // of them, prefill: the chunk
  std::int64_t max_running_requests = 0;  // at most max_step_tokens, so every decode fits a step
};

/// What one sequence contributes to a step: its next `num_tokens` pending tokens.
struct ScheduledSlice {
  Sequence* sequence = nullptr;
  std::int64_t num_tokens = 0;
  bool ends_sequence = false;  // the last pending token is in it: its logits give the next token
};

/// Waiting and running sequences of one data-parallel rank, and that rank's cache blocks.
///
/// A step takes every running sequence that decodes, oldest first; then unfinished prompts; then it
/// admits waiting requests in the order they came. When a decode needs a block and none is free,
/// the youngest running sequence goes back to the head of the queue and is computed again later;
/// what it has generated is kept, so its client notices only time. The oldest is never sent back
/// and every request fits the cache alone, so each one finishes.
///
/// An admitted sequence starts behind the longest prefix in the prefix cache, and its blocks enter
/// that as they fill. While a step computes what the next one in the queue could find there, that
/// one waits; each time it finds more, so it does not wait long. Thread rule: the engine thread.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, std::int64_t num_blocks, bool keeps_prefixes);

  void add(std::unique_ptr<Sequence> sequence);
  /// Chooses the next step. The view lives until the next call; no token is marked as computed.
  const std::vector<ScheduledSlice>& schedule();
  /// Marks the tokens of the last schedule() as cached, and returns it again.
  const std::vector<ScheduledSlice>& complete_step();
  /// Takes a sequence out, wherever it is, and frees its blocks; null for an unknown id.
  std::unique_ptr<Sequence> remove(RequestId request_id);
  /// Takes any one sequence out; null when there is none.
  std::unique_ptr<Sequence> remove_any();
  /// Sends the youngest running sequence back to the queue. False when none runs.
  bool preempt_youngest();

  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  std::int64_t num_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t num_running() const { return static_cast<std::int64_t>(running_.size()); }
  /// Tokens of all its sequences; what the assignment to ranks compares.
  std::int64_t num_tokens() const;
  /// Since start: running sequences sent back, and prompt tokens that the prefix cache had.
  std::int64_t num_preemptions() const { return num_preemptions_; }
  std::int64_t num_prefix_tokens() const { return num_prefix_tokens_; }
  SequenceBlocks& blocks() { return blocks_; }
  const SequenceBlocks& blocks() const { return blocks_; }

 private:
  void schedule_decodes();
  void schedule_prefills(std::int64_t budget);
  void admit(std::int64_t budget);
  bool take_blocks(Sequence& sequence);
  bool can_admit(const Sequence& sequence) const;
  bool step_computes_prefix_of(const Sequence& sequence) const;
  void note_admission(Sequence& sequence);
  bool ensure_block(const Sequence& sequence, std::size_t running_idx);
  std::int64_t schedule_slice(Sequence& sequence, std::int64_t budget);
  std::int64_t num_scheduled_tokens() const;

  SchedulerLimits limits_;
  SequenceBlocks blocks_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // by age, oldest first
  std::vector<std::unique_ptr<Sequence>> running_;  // by age, oldest first
  std::vector<ScheduledSlice> slices_;
  std::int64_t num_preemptions_ = 0;
  std::int64_t num_prefix_tokens_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_SCHEDULER_H_
