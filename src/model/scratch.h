// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MODEL_SCRATCH_H_
#define HALFBYTE_MODEL_SCRATCH_H_

#include "base/checked.h"
#include "model/ops.h"

namespace halfbyte {

/// Cuts consecutive buffers out of one allocation. The same code sizes the allocation (no base) and
/// finds the pointers, so the two cannot disagree.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(float* base) : base_(base) {}

  Rows rows(std::int64_t num_rows, std::int64_t cols) {
    return {take(num_rows * cols), num_rows, cols};
  }
  float* take(std::int64_t floats) {
    float* pointer = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 16);  // whole cache lines
    return pointer;
  }
  std::int64_t used_floats() const { return used_; }

 private:
  float* base_ = nullptr;
  std::int64_t used_ = 0;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MODEL_SCRATCH_H_
