// SPDX-License-Identifier: Apache-2.0
//
// The step loop on its thread, and the two queues between it and everybody else.
#ifndef HALFBYTE_ENGINE_ENGINE_LOOP_H_
#define HALFBYTE_ENGINE_ENGINE_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/rank_group.h"
#include "engine/step_recorder.h"
#include "engine/token_selector.h"

namespace halfbyte {

/// Thread rule: submit, poll, cancel, set_paused, flush_cache, score, stats, histograms and
/// expert_load from any thread; everything else belongs to the loop's thread, which the constructor
/// starts and the destructor joins.
class EngineLoop {
 public:
  explicit EngineLoop(EngineParts parts);
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  Result<RequestId> submit(Request request);
  std::vector<TokenEvent> poll(int timeout_ms);
  void cancel(RequestId request_id);
  void set_paused(RequestId request_id, bool paused);
  void flush_cache();
  Result<std::vector<float>> score(const std::vector<std::int32_t>& ids);
  EngineStats stats() const;
  EngineHistograms histograms() const;
  std::vector<ExpertLoad> expert_load() const { return ranks_.expert_load(info_.ep_size); }
  const EngineInfo& info() const { return info_; }

 private:
  struct ScoreJob {
    std::vector<std::int32_t> ids;
    std::vector<float> logits;  // [ids, vocab], to fill
    std::promise<Result<std::vector<float>>> answer;
  };
  struct Inbox {  // what other threads asked for since the last step
    std::vector<std::unique_ptr<Sequence>> requests;
    std::vector<std::pair<RequestId, bool>> paused;  // or, if false, taken in again
    std::vector<RequestId> cancelled;
    std::vector<ScoreJob> scores;
    bool flushes_cache = false;
    bool empty() const {
      return requests.empty() && paused.empty() && cancelled.empty() && scores.empty() &&
             !flushes_cache;
    }
  };

  // any thread
  std::unique_ptr<Sequence> make_sequence(Request request) const;
  Status refusal() const;

  // the loop's thread
  void run();
  bool take_inbox(Inbox& inbox);
  Status handle_inbox(Inbox& inbox);
  void assign(std::unique_ptr<Sequence> sequence);
  void pause_now(RequestId request_id, bool paused);
  void cancel_now(RequestId request_id);
  Status step();
  std::vector<RankBatch> schedule();
  void note_first_steps(std::span<const ScheduledSlice> slices);
  void note_shape(std::span<const ScheduledSlice> slices);
  void publish_shape();
  Status forward(std::span<const RankBatch> batches);
  void accept_logits(std::size_t dp_rank, std::span<const ScheduledSlice> slices);
  void accept_rows(Scheduler& scheduler,
                   const ScheduledSlice& slice,
                   std::span<const float> logits);
  void end_behind_prompt(Scheduler& scheduler, Sequence& sequence);
  void accept_token(Scheduler& scheduler, Sequence& sequence, Result<SelectedToken> selected);
  Status run_score(ScoreJob& job);
  Status score_chunks(ScoreJob& job, std::span<const std::int32_t> block_table);
  void publish();
  void end_everything(const Status& why);
  bool has_work() const;

  const EngineInfo info_;
  const SchedulerLimits limits_;
  const std::int64_t num_blocks_;
  RankGroup ranks_;

  // the loop's thread
  std::deque<Scheduler> schedulers_;  // one per data-parallel rank
  // The same; [at most max_running_requests + max_prompt_logit_rows of the limits, vocab].
  std::vector<std::vector<float>> logits_;
  TokenSelector selector_;
  std::vector<TokenEvent> new_events_;
  EngineStats counted_;  // what no scheduler counts
  StepRecorder recorder_;

  mutable std::mutex mutex_;  // everything below
  std::condition_variable inbox_filled_;
  std::condition_variable events_added_;
  Inbox inbox_;
  std::vector<TokenEvent> events_;
  EngineStats stats_;
  EngineHistograms histograms_;
  RequestId next_request_id_ = 1;
  bool stopping_ = false;
  Status failure_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_ENGINE_LOOP_H_
