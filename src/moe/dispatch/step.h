// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_DISPATCH_STEP_H_
#define HALFBYTE_MOE_DISPATCH_STEP_H_

#include <cstdint>

#include "halfbyte/status.h"

namespace halfbyte {

/// The turn-taking of dispatch and combine. Buffers are single, so a second dispatch would
/// overwrite what combine still needs; a second combine would reduce an output that is complete.
class DispatchStep {
 public:
  Status check_idle() const {
    if (!in_flight_) return {};
    return {StatusCode::kInvalidArgument,
            "dispatch was called twice: combine the first one before"};
  }
  Status check_in_flight() const {
    if (in_flight_) return {};
    return {StatusCode::kInvalidArgument,
            "combine needs a dispatch before it: the last output is complete, and complete outputs "
            "are not reduced again"};
  }
  void begin(std::int64_t num_tokens) {
    in_flight_ = true;
    num_tokens_ = num_tokens;
  }
  void end() { in_flight_ = false; }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  bool in_flight_ = false;
  std::int64_t num_tokens_ = 0;  // of this rank, in the step in flight
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_STEP_H_
