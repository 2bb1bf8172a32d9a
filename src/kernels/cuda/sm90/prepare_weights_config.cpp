// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/sm90/prepare_weights.h"

namespace halfbyte::sm90 {

Status can_run(const WeightShape& shape) {
  if (shape.num_halves < 1 || shape.num_halves > 2 || shape.half_rows < 1 || shape.cols < 16 ||
      shape.cols % 16 != 0) {
    return {
        StatusCode::kUnsupported,
        fmt::format("layout {}: {} x {} rows of {} columns, want one or two halves and columns in "
                    "multiples of 16",
                    kLayoutName, shape.num_halves, shape.half_rows, shape.cols)};
  }
  return {};
}

}  // namespace halfbyte::sm90
