// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "checkpoint/module_path.h"
#include "formats/convert.h"
#include "formats/e4m3.h"
#include "weights/checkpoint_impl.h"

namespace halfbyte {
namespace {

constexpr std::size_t kCodeBytesPerBlock = 8;
constexpr std::uint8_t kCodeMagnitudes = 0x77;  // both codes of a byte without their signs

WeightFormat format_of(DType dtype) {
  if (dtype == DType::kBf16) return WeightFormat::kBf16;
  return dtype == DType::kF16 ? WeightFormat::kF16 : WeightFormat::kF32;
}

Status load_nvfp4_scalars(const LinearEntries& entries,
                          const LinearKind& kind,
                          LoadedLinear& linear) {
  const RawTensor* global = entries[kind.dialect->global_scale];
  if (global == nullptr) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: absent; without it the weights cannot be decoded",
                              role_name(kind.dialect->global_scale)));
  }
  const bool reciprocal = kind.dialect->scalars_are_reciprocal;
  HALFBYTE_ASSIGN_OR_RETURN(linear.matrix.global_scale, read_scalar(*global, reciprocal));
  if (!is_good_scale(linear.matrix.global_scale)) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: {} {}, want finite and > 0", short_name(*global),
                              reciprocal ? "its inverse is" : "value", linear.matrix.global_scale));
  }
  // Whether an input scale is any good matters to w4a4 only, which checks it.
  if (const RawTensor* input = entries[kind.dialect->input_scale]) {
    HALFBYTE_ASSIGN_OR_RETURN(linear.input_scale, read_scalar(*input, reciprocal));
  }
  return {};
}

Status load_nvfp4(const LinearEntries& entries, const LinearKind& kind, LoadedLinear& linear) {
  linear.matrix.format = WeightFormat::kNvfp4;
  const RawTensor& scale = *entries[TensorRole::kWeightScale];
  linear.matrix.block_scale = scale.bytes;
  if (entries[TensorRole::kPreQuantScale] != nullptr) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: NVFP4_AWQ's scale per column",
                              short_name(*entries[TensorRole::kPreQuantScale])));
  }
  HALFBYTE_RETURN_IF_ERROR(load_nvfp4_scalars(entries, kind, linear));
  return check_block_scales(short_name(scale), linear);
}

/// The scales of an FP8 linear as fp32, whatever their dtype.
Result<std::vector<float>> widen_scales(const RawTensor& scale) {
  std::vector<float> values;
  if (scale.dtype == DType::kU8 || scale.dtype == DType::kF8E8m0) {
    values.resize(scale.bytes.size());
    std::transform(scale.bytes.begin(), scale.bytes.end(), values.begin(), e8m0_to_f32);
  } else {
    values.resize(scale.bytes.size() / static_cast<std::size_t>(dtype_bytes(scale.dtype)));
    widen_to_f32(scale.dtype, scale.bytes.data(), static_cast<std::int64_t>(values.size()),
                 values.data());
  }
  const auto bad = std::find_if_not(values.begin(), values.end(), is_good_scale);
  if (bad != values.end()) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: value {} at {}, want finite and > 0", short_name(scale), *bad,
                              bad - values.begin()));
  }
  return values;
}

Status load_fp8(const LinearEntries& entries, const LinearKind& kind, LoadedLinear& linear) {
  linear.matrix.format = WeightFormat::kFp8;
  const RawTensor* scale = kind.linear_class == LinearClass::kFp8Block
                               ? entries[TensorRole::kWeightScaleInv]
                               : entries[TensorRole::kWeightScale];
  HALFBYTE_ASSIGN_OR_RETURN(std::vector<float> values, widen_scales(*scale));
  linear.owned_scale = std::make_unique<std::vector<float>>(std::move(values));
  linear.matrix.scale = *linear.owned_scale;
  linear.matrix.scale_block_rows = kind.scale_block_rows;
  linear.matrix.scale_block_cols = kind.scale_block_cols;
  if (const RawTensor* input = entries[TensorRole::kInputScale]) {
    HALFBYTE_ASSIGN_OR_RETURN(linear.input_scale, read_scalar(*input, false));
  }
  return {};
}

Status load_bias(const LinearEntries& entries, const LinearKind& kind, LoadedLinear& linear) {
  const RawTensor* bias = entries[TensorRole::kBias];
  if (bias == nullptr) return {};
  const bool is_float =
      bias->dtype == DType::kF32 || bias->dtype == DType::kBf16 || bias->dtype == DType::kF16;
  if (!is_float || bias->shape.size() != 1 || bias->shape[0] != kind.rows) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: {} {}, want 16- or 32-bit floats [{}]", short_name(*bias),
                              dtype_name(bias->dtype), format_shape(bias->shape), kind.rows));
  }
  linear.bias.resize(static_cast<std::size_t>(kind.rows));
  widen_to_f32(bias->dtype, bias->bytes.data(), kind.rows, linear.bias.data());
  return {};
}

/// A block scale that is NaN or has its sign set: fine only as NaN over an all-zero block.
Status check_bad_block(std::string_view tensor_name, LoadedLinear& linear, std::size_t block) {
  const CanonicalMatrix& matrix = linear.matrix;
  const std::uint8_t byte = matrix.block_scale[block];
  const auto codes = matrix.codes.subspan(block * kCodeBytesPerBlock, kCodeBytesPerBlock);
  const bool is_nan = (byte & kE4m3Nan) == kE4m3Nan;
  const bool is_zero = std::all_of(codes.begin(), codes.end(),
                                   [](std::uint8_t code) { return (code & kCodeMagnitudes) == 0; });
  if (!is_nan || !is_zero) {
    const auto groups = static_cast<std::size_t>(matrix.cols / 16);
    return Status(
        StatusCode::kCorruptData,
        fmt::format("{}: row {}, group {}: byte 0x{:02X} is {}, want a positive E4M3 value",
                    tensor_name, block / groups, block % groups, byte,
                    is_nan ? "NaN" : "negative"));
  }
  if (!linear.owned_block_scale) {
    linear.owned_block_scale = std::make_unique<std::vector<std::uint8_t>>(
        matrix.block_scale.begin(), matrix.block_scale.end());
    linear.matrix.block_scale = *linear.owned_block_scale;
  }
  (*linear.owned_block_scale)[block] = 0;
  return {};
}

}  // namespace

Status check_block_scales(std::string_view tensor_name, LoadedLinear& linear) {
  const std::span<const std::uint8_t> scales = linear.matrix.block_scale;
  // Good bytes are 0x00 to 0x7E: one pass that the compiler vectorises, a second one only if
  // needed.
  std::uint8_t largest = 0;
  for (const std::uint8_t byte : scales)
    largest = std::max(largest, byte);
  if (largest < kE4m3Nan) return {};
  for (std::size_t block = 0; block < scales.size(); ++block) {
    if (scales[block] >= kE4m3Nan) {
      HALFBYTE_RETURN_IF_ERROR(check_bad_block(tensor_name, linear, block));
    }
  }
  return {};
}

Result<LoadedLinear> load_linear(const LinearEntries& entries, const LinearKind& kind) {
  const RawTensor& payload = *entries.payload();
  LoadedLinear linear;
  linear.linear_class = kind.linear_class;
  linear.matrix.rows = kind.rows;
  linear.matrix.cols = kind.cols;
  linear.matrix.codes = payload.bytes;
  switch (kind.linear_class) {
    case LinearClass::kDense:
      linear.matrix.format = format_of(payload.dtype);
      break;
    case LinearClass::kNvfp4:
      HALFBYTE_RETURN_IF_ERROR(load_nvfp4(entries, kind, linear));
      break;
    case LinearClass::kFp8PerTensor:
    case LinearClass::kFp8PerChannel:
    case LinearClass::kFp8Block:
    case LinearClass::kMxfp8:
      HALFBYTE_RETURN_IF_ERROR(load_fp8(entries, kind, linear));
      break;
    case LinearClass::kMxfp4:
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: MXFP4 weights", short_name(payload)));
  }
  HALFBYTE_RETURN_IF_ERROR(load_bias(entries, kind, linear));
  return linear;
}

Result<LoadedLinear> CheckpointWeights::linear(std::string_view module,
                                               std::int64_t rows,
                                               std::int64_t cols) {
  const std::string path(module);
  const auto kind = impl_->kinds.find(path);
  const auto entries = impl_->map.modules.find(path);
  if (kind == impl_->kinds.end() || entries == impl_->map.modules.end()) {
    return impl_->missing(path + ".weight");
  }
  const RawTensor& payload = *entries->second.entries.payload();
  if (kind->second.rows != rows || kind->second.cols != cols) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: {} x {} values, want {} x {}{}", payload.name, kind->second.rows,
                              kind->second.cols, rows, cols, in_file(payload, *impl_->raw)));
  }
  auto loaded = load_linear(entries->second.entries, kind->second);
  if (!loaded.ok()) {
    Status status = loaded.take_status();
    return Status(status.code(), std::string(status.message()) + in_file(payload, *impl_->raw))
        .with_context(parent_path(path));
  }
  impl_->consume(entries->second.entries);
  return loaded;
}

Result<std::vector<float>> CheckpointWeights::tensor_f32(std::string_view name,
                                                         std::int64_t count) {
  const auto it = impl_->map.plain.find(std::string(name));
  if (it == impl_->map.plain.end()) return impl_->missing(name);
  const RawTensor& tensor = *it->second;
  const bool is_float =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kBf16 || tensor.dtype == DType::kF16;
  std::uint64_t elements = 1;
  for (const std::int64_t dim : tensor.shape)
    elements *= static_cast<std::uint64_t>(dim);
  if (!is_float || elements != static_cast<std::uint64_t>(count)) {
    return Status(StatusCode::kCorruptData,
                  fmt::format("{}: {} {}, want {} 16- or 32-bit floats{}", tensor.name,
                              dtype_name(tensor.dtype), format_shape(tensor.shape), count,
                              in_file(tensor, *impl_->raw)));
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  widen_to_f32(tensor.dtype, tensor.bytes.data(), count, values.data());
  impl_->consume(&tensor);
  return values;
}

}  // namespace halfbyte
