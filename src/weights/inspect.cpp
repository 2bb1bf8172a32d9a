// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_impl.h"

namespace halfbyte {

CheckpointSummary CheckpointWeights::summarize() const {
  CheckpointSummary summary;
  summary.num_tensors = static_cast<std::int64_t>(impl_->raw->tensors().size());
  return summary;
}

}  // namespace halfbyte
