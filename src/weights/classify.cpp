// SPDX-License-Identifier: Apache-2.0
#include "weights/classify.h"

#include <fmt/format.h>

#include "base/checked.h"

namespace halfbyte {
namespace {

constexpr std::int64_t kBlock = 16;    // NVFP4
constexpr std::int64_t kMxBlock = 32;  // MXFP4, MXFP8

Status corrupt(const RawTensor& tensor, std::string_view what) {
  return Status(StatusCode::kCorruptData, fmt::format("{}: {}", short_name(tensor), what));
}

Status unsupported(const RawTensor& tensor, std::string_view what) {
  return Status(StatusCode::kUnsupported, fmt::format("{}: {}", short_name(tensor), what));
}

bool is_byte(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8;
}

bool has_shape(const RawTensor& tensor, std::int64_t rows, std::int64_t cols) {
  return tensor.shape.size() == 2 && tensor.shape[0] == rows && tensor.shape[1] == cols;
}

Status wrong_shape(const RawTensor& tensor, std::int64_t rows, std::int64_t cols) {
  return corrupt(tensor,
                 fmt::format("shape {}, want [{}, {}]", format_shape(tensor.shape), rows, cols));
}

/// The tensors that are there, for messages about a combination that means nothing.
std::string list_siblings(const LinearEntries& entries) {
  std::string text;
  for (const RawTensor* tensor : entries.tensors) {
    if (tensor == nullptr) continue;
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ",
                        tensor->name.substr(tensor->name.rfind('.') + 1), dtype_name(tensor->dtype),
                        format_shape(tensor->shape));
  }
  return text;
}

Status check_nvfp4_scale(const RawTensor& scale, const LinearKind& kind) {
  const std::int64_t groups = kind.cols / kBlock;
  if (has_shape(scale, kind.rows, groups)) return {};
  if (has_shape(scale, kind.rows, kind.cols / kMxBlock)) {
    return unsupported(
        scale, "blocks of 32 beside an E4M3 scale (W4A8_NVFP4_FP8); NVFP4 has blocks of 16");
  }
  if (has_shape(scale, round_up(kind.rows, 128), round_up(groups, 4))) {
    return unsupported(
        scale, fmt::format("shape {} is padded: the block scales are swizzled on disk, want "
                           "row-major [{}, {}]",
                           format_shape(scale.shape), kind.rows, groups));
  }
  return wrong_shape(scale, kind.rows, groups);
}

Result<LinearKind> classify_nvfp4(const LinearEntries& entries,
                                  const RawTensor& payload,
                                  const Dialect& dialect,
                                  const QuantPlan& plan) {
  LinearKind kind;
  kind.linear_class = LinearClass::kNvfp4;
  kind.dialect = &dialect;
  kind.rows = payload.shape[0];
  kind.cols = payload.dtype == DType::kF4E2m1 ? payload.shape[1] : payload.shape[1] * 2;
  if (plan.group_size != kBlock) {
    return unsupported(payload, fmt::format("group_size {} in the config; NVFP4 has groups of {}",
                                            plan.group_size, kBlock));
  }
  if (kind.cols % kBlock != 0) {
    return corrupt(payload, fmt::format("{} columns, want a multiple of {}", kind.cols, kBlock));
  }
  HALFBYTE_RETURN_IF_ERROR(check_nvfp4_scale(*entries[TensorRole::kWeightScale], kind));
  return kind;
}

Result<LinearKind> classify_mx(const RawTensor& payload,
                               const RawTensor& scale,
                               LinearClass linear_class) {
  LinearKind kind;
  kind.linear_class = linear_class;
  kind.rows = payload.shape[0];
  kind.cols = linear_class == LinearClass::kMxfp4 ? payload.shape[1] * 2 : payload.shape[1];
  kind.scale_block_rows = 1;
  kind.scale_block_cols = kMxBlock;
  if (!has_shape(scale, kind.rows, kind.cols / kMxBlock) || kind.cols % kMxBlock != 0) {
    return wrong_shape(scale, kind.rows, kind.cols / kMxBlock);
  }
  return kind;
}

Result<LinearKind> classify_fp8_block(const RawTensor& payload,
                                      const RawTensor& scale,
                                      const QuantPlan& plan) {
  LinearKind kind;
  kind.linear_class = LinearClass::kFp8Block;
  kind.rows = payload.shape[0];
  kind.cols = payload.shape[1];
  const auto& stated = plan.weight_block_size;
  kind.scale_block_rows = stated.empty() ? 128 : stated[0];
  kind.scale_block_cols = stated.empty() ? 128 : stated[1];
  if (kind.scale_block_rows < 1 || kind.scale_block_cols < 1) {
    return Status(
        StatusCode::kCorruptData,
        fmt::format("weight_block_size: want two positive integers, got {}", format_shape(stated)));
  }
  const std::int64_t want_rows = ceil_div(kind.rows, kind.scale_block_rows);
  const std::int64_t want_cols = ceil_div(kind.cols, kind.scale_block_cols);
  if (!has_shape(scale, want_rows, want_cols)) return wrong_shape(scale, want_rows, want_cols);
  const bool good = scale.dtype == DType::kF32 || scale.dtype == DType::kBf16 ||
                    scale.dtype == DType::kF8E8m0 || scale.dtype == DType::kU8;
  if (!good) {
    return corrupt(scale, fmt::format("{}, want F32, BF16 or F8_E8M0", dtype_name(scale.dtype)));
  }
  return kind;
}

Result<LinearKind> classify_fp8(const RawTensor& payload, const RawTensor& scale) {
  LinearKind kind;
  kind.rows = payload.shape[0];
  kind.cols = payload.shape[1];
  kind.scale_block_cols = kind.cols;
  const auto& shape = scale.shape;
  const bool is_scalar = shape.empty() || (shape.size() == 1 && shape[0] == 1);
  const bool is_per_row =
      (shape.size() == 1 && shape[0] == kind.rows) || has_shape(scale, kind.rows, 1);
  if (is_scalar) {
    kind.linear_class = LinearClass::kFp8PerTensor;
    kind.scale_block_rows = kind.rows;
  } else if (is_per_row) {
    kind.linear_class = LinearClass::kFp8PerChannel;
    kind.scale_block_rows = 1;
  } else {
    return corrupt(scale, fmt::format("shape {}, want [], [1], [{}] or [{}, 1]",
                                      format_shape(shape), kind.rows, kind.rows));
  }
  return kind;
}

bool is_mx_scale(const RawTensor& scale) {
  return scale.dtype == DType::kU8 || scale.dtype == DType::kF8E8m0;
}

Result<LinearKind> classify_four_bit(const LinearEntries& entries,
                                     const RawTensor& payload,
                                     const QuantPlan& plan) {
  const RawTensor* scale = entries[TensorRole::kWeightScale];
  if (scale == nullptr) {
    return corrupt(payload, fmt::format("{} payload without weight_scale; found {}",
                                        dtype_name(payload.dtype), list_siblings(entries)));
  }
  if (is_mx_scale(*scale)) return classify_mx(payload, *scale, LinearClass::kMxfp4);
  if (scale->dtype != DType::kF8E4m3) {
    return corrupt(*scale, fmt::format("{} beside a {} payload, want F8_E4M3; found {}",
                                       dtype_name(scale->dtype), dtype_name(payload.dtype),
                                       list_siblings(entries)));
  }
  const bool packed = entries[TensorRole::kWeightPacked] != nullptr;
  return classify_nvfp4(entries, payload, packed ? kCompressedTensorsDialect : kModelOptDialect,
                        plan);
}

Result<LinearKind> classify_eight_bit(const LinearEntries& entries,
                                      const RawTensor& payload,
                                      const QuantPlan& plan) {
  if (const RawTensor* scale = entries[TensorRole::kWeightScaleInv]) {
    return classify_fp8_block(payload, *scale, plan);
  }
  const RawTensor* scale = entries[TensorRole::kWeightScale];
  if (scale == nullptr) {
    return corrupt(payload,
                   fmt::format("F8_E4M3 without a scale; found {}", list_siblings(entries)));
  }
  if (is_mx_scale(*scale)) return classify_mx(payload, *scale, LinearClass::kMxfp8);
  if (is_wide_float(scale->dtype)) return classify_fp8(payload, *scale);
  return corrupt(*scale, fmt::format("{} beside an F8_E4M3 payload; found {}",
                                     dtype_name(scale->dtype), list_siblings(entries)));
}

Result<LinearKind> classify_wide(const LinearEntries& entries, const RawTensor& payload) {
  for (const TensorRole role : {TensorRole::kWeightScale, TensorRole::kWeightScale2,
                                TensorRole::kWeightScaleInv, TensorRole::kWeightGlobalScale}) {
    if (entries[role] == nullptr) continue;
    return corrupt(payload, fmt::format("{} with a scale beside it; found {}",
                                        dtype_name(payload.dtype), list_siblings(entries)));
  }
  LinearKind kind;
  kind.rows = payload.shape[0];
  kind.cols = payload.shape[1];
  return kind;
}

}  // namespace

std::string_view class_name(const LinearKind& kind, const RawTensor& payload) {
  return kind.linear_class == LinearClass::kDense ? dtype_name(payload.dtype)
                                                  : linear_class_name(kind.linear_class);
}

bool is_wide_float(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kF16 || dtype == DType::kF32;
}

std::string format_shape(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string_view linear_class_name(LinearClass linear_class) {
  switch (linear_class) {
    case LinearClass::kDense:
      return "dense";
    case LinearClass::kNvfp4:
      return "NVFP4";
    case LinearClass::kFp8PerTensor:
      return "FP8 per tensor";
    case LinearClass::kFp8PerChannel:
      return "FP8 per channel";
    case LinearClass::kFp8Block:
      return "FP8 block";
    case LinearClass::kMxfp8:
      return "MXFP8";
    case LinearClass::kMxfp4:
      return "MXFP4";
  }
  return "?";
}

Result<LinearKind> classify_linear(const LinearEntries& entries, const QuantPlan& plan) {
  const RawTensor* payload = entries.payload();
  if (payload == nullptr) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("no weight; found {}", list_siblings(entries)));
  }
  if (entries[TensorRole::kWeight] != nullptr && entries[TensorRole::kWeightPacked] != nullptr) {
    return corrupt(*payload, fmt::format("two payloads; found {}", list_siblings(entries)));
  }
  if (payload->shape.size() != 2) {
    return corrupt(*payload,
                   fmt::format("shape {}, want [rows, columns]", format_shape(payload->shape)));
  }
  if (is_byte(payload->dtype) || payload->dtype == DType::kF4E2m1) {
    return classify_four_bit(entries, *payload, plan);
  }
  if (payload->dtype == DType::kF8E4m3) return classify_eight_bit(entries, *payload, plan);
  if (is_wide_float(payload->dtype)) return classify_wide(entries, *payload);
  return corrupt(*payload, fmt::format("{} is no weight; found {}", dtype_name(payload->dtype),
                                       list_siblings(entries)));
}

}  // namespace halfbyte
