// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_WEIGHTS_CLASSIFY_H_
#define HALFBYTE_WEIGHTS_CLASSIFY_H_

#include <cstdint>
#include <string>

#include "checkpoint/quant_plan.h"
#include "weights/checkpoint_weights.h"
#include "weights/dialects/dialect.h"
#include "weights/tensor_map.h"

namespace halfbyte {

/// What a linear is, from the header alone.
struct LinearKind {
  LinearClass linear_class = LinearClass::kDense;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const Dialect* dialect = nullptr;   // NVFP4
  std::int64_t scale_block_rows = 0;  // FP8 kinds
  std::int64_t scale_block_cols = 0;
};

/// The table of checkpoints.md section 3: first row that fits. All shapes are checked.
///
/// @return kCorruptData (a shape, or a combination that means nothing: lists the siblings found),
///         kUnsupported (a layout that is recognised but not read). Messages begin with the
///         tensor's short name and end with nothing: the caller adds module and file.
Result<LinearKind> classify_linear(const LinearEntries& entries, const QuantPlan& plan);

/// "[16, 8]".
std::string format_shape(std::span<const std::int64_t> shape);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_CLASSIFY_H_
