// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MODEL_STEP_H_
#define HALFBYTE_MODEL_STEP_H_

#include <cstdint>
#include <vector>

#include "model/ops.h"

namespace halfbyte {

/// What a batch may be on one rank.
struct StepLimits {
  std::int64_t capacity_tokens = 0;
  std::int64_t max_context_tokens = 0;
  std::int64_t num_blocks = 0;
  std::int64_t vocab_size = 0;
};

/// Ok, or what is wrong with the batch, before any rank has started to compute. kCapacityExceeded
/// for too many tokens on any rank, so that all ranks fail alike; kInvalidArgument for the rest.
Status check_batch(const Batch& batch, const StepLimits& limits);

/// Per-token facts of a step, in buffers that are allocated once.
class StepBuffers {
 public:
  StepBuffers(std::int64_t capacity_tokens, const RopeTable& rope);
  /// A view that holds until the next call. `batch` passed check_batch.
  StepView fill(const Batch& batch, const RopeTable& rope);

 private:
  std::vector<std::int64_t> positions_;
  std::vector<std::int64_t> cache_rows_;
  std::vector<std::int32_t> sequence_idx_;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_STEP_H_
