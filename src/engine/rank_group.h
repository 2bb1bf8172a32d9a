// SPDX-License-Identifier: Apache-2.0
//
// All ranks of a model in lock-step: rank 0 is the caller, every other rank a thread.
#ifndef HALFBYTE_ENGINE_RANK_GROUP_H_
#define HALFBYTE_ENGINE_RANK_GROUP_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "comm/transport.h"
#include "engine/step_batch.h"
#include "model/model.h"

namespace halfbyte {

/// Runs steps on every rank. The ranks of a data-parallel group compute the same batch; the first
/// of them gives the logits, the others ask their model for none. Between steps the threads sleep,
/// so that an idle engine costs nothing and no deadline runs.
///
/// The first failure of any rank aborts every transport, and is what step() returns then and ever
/// after. Thread rule: one thread calls step() and the destructor; stop() may come from any
/// thread.
class RankGroup {
 public:
  /// One model per rank; one transport per rank, or none for a single rank. `dp_size` divides the
  /// number of ranks. Throws std::system_error when the system refuses a rank its thread.
  RankGroup(std::vector<std::unique_ptr<Model>> models,
            std::vector<std::unique_ptr<Transport>> transports,
            int dp_size);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// One forward everywhere. `batches` and `logits` have an element per data-parallel rank;
  /// logits[d] is [batches[d].logit_rows.size(), vocab].
  Status step(std::span<const RankBatch> batches, std::span<const std::span<float>> logits);
  /// Makes a step in progress and every later one return `why`.
  void stop(const Status& why);

  /// Over all ranks. Any thread.
  std::vector<ExpertLoad> expert_load(int ep_size) const;

  int num_ranks() const { return static_cast<int>(models_.size()); }
  int dp_size() const { return dp_size_; }
  const Model& model() const { return *models_.front(); }

 private:
  void follow(std::size_t rank);
  void join_followers();
  bool wait_for_step(std::int64_t step_idx);
  Status run_follower_step(std::size_t rank);
  Status send(std::span<const RankBatch> batches);
  Result<std::vector<RankBatch>> receive(std::size_t rank);
  Status forward(std::size_t rank, std::span<const RankBatch> batches);
  void fail(std::size_t rank, Status status);
  void start_step(std::span<const std::span<float>> logits);
  Status wait_for_followers();

  std::vector<std::unique_ptr<Model>> models_;
  std::vector<std::unique_ptr<Transport>> transports_;
  int dp_size_;
  std::size_t ranks_per_group_;
  std::span<const std::span<float>> logits_;  // of the step in progress

  std::mutex mutex_;
  std::condition_variable step_begins_;
  std::condition_variable rank_finished_;
  std::int64_t num_steps_ = 0;    // begun
  std::size_t num_finished_ = 0;  // followers done with the step in progress
  bool stopping_ = false;
  Status failure_;                      // the first one
  std::vector<std::thread> followers_;  // ranks 1, 2, ..
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_RANK_GROUP_H_
