// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_ENGINE_STEP_RECORDER_H_
#define HALFBYTE_ENGINE_STEP_RECORDER_H_

#include <cstdint>

#include "halfbyte/engine.h"

namespace halfbyte {

/// Fills EngineHistograms. Thread rule: one thread.
class StepRecorder {
 public:
  StepRecorder();
  /// A request's first step begins, so long after it was submitted.
  void add_queue_time(double seconds);
  /// A step, and how long its forward pass was of it.
  void add_step(const StepShape& shape, double seconds, double forward_seconds);
  const EngineHistograms& histograms() const { return histograms_; }

 private:
  EngineHistograms histograms_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_ENGINE_STEP_RECORDER_H_
