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
  float global_scale = 1.0F;          // NVFP4; multiplies. Read and checked at opening
  std::int64_t scale_block_rows = 0;  // FP8 kinds
  std::int64_t scale_block_cols = 0;
};

/// The table of checkpoints.md section 3: first row that fits. All shapes are checked.
///
/// @return kCorruptData (a shape, or a combination that means nothing: lists the siblings found),
///         kUnsupported (a layout that is recognised but not read). Messages begin with the
///         tensor's short name and end with nothing: the caller adds module and file.
Result<LinearKind> classify_linear(const LinearEntries& entries, const QuantPlan& plan);

/// For people: "NVFP4", and the dtype of a dense linear, "BF16".
std::string_view class_name(const LinearKind& kind, const RawTensor& payload);

/// BF16, F16 or F32.
bool is_wide_float(DType dtype);

/// "[16, 8]".
std::string format_shape(std::span<const std::int64_t> shape);

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_CLASSIFY_H_
