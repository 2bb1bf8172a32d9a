// SPDX-License-Identifier: Apache-2.0
//
// What every rank is told of a step: one message from rank 0.
#ifndef HALFBYTE_ENGINE_STEP_BATCH_H_
#define HALFBYTE_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "model/model.h"

namespace halfbyte {

/// The part of a step that one data-parallel rank computes; owns what a Batch points to.
struct RankBatch {
  struct Slice {
    std::int64_t num_tokens = 0;
    std::int64_t context_tokens = 0;
    std::vector<std::int32_t> block_table;
  };
  std::vector<std::int32_t> token_ids;
  std::vector<Slice> slices;
  std::vector<std::int32_t> logit_rows;

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(token_ids.size()); }
  /// Appends the next tokens of a sequence; logits are wanted of their last `num_logit_rows` rows.
  void add(std::span<const std::int32_t> tokens,
           std::int64_t context_tokens,
           std::span<const std::int32_t> block_table,
           std::int64_t num_logit_rows);
};

RankBatch make_rank_batch(std::span<const ScheduledSlice> slices);

/// The views of a RankBatch. `tokens_per_rank` must outlive them.
class BatchView {
 public:
  BatchView(const RankBatch& batch,
            std::span<const std::int64_t> tokens_per_rank,
            bool wants_logits);
  const Batch& batch() const { return batch_; }

 private:
  std::vector<SequenceSlice> sequences_;
  Batch batch_;
};

/// The batches of all data-parallel ranks as words, and back. kTransportError when the words are
/// not such a message.
std::vector<std::int32_t> encode_step(std::span<const RankBatch> batches);
Result<std::vector<RankBatch>> decode_step(std::span<const std::int32_t> words);

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_STEP_BATCH_H_
