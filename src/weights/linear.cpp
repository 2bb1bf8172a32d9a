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

/// Whether an input scale is any good matters to w4a4 only, which checks it: what cannot be read
/// counts as absent here.
float read_input_scale(const RawTensor* tensor, bool is_reciprocal) {
  if (tensor == nullptr) return 0.0F;
  const auto value = read_scalar(*tensor, is_reciprocal);
  return value.ok() ? *value : 0.0F;
}

Status load_nvfp4(const LinearEntries& entries, const LinearKind& kind, LoadedLinear& linear) {
  linear.matrix.format = WeightFormat::kNvfp4;
  linear.matrix.global_scale = kind.global_scale;
  const RawTensor& scale = *entries[TensorRole::kWeightScale];
  linear.matrix.block_scale = scale.bytes;
  linear.input_scale =
      read_input_scale(entries[kind.dialect->input_scale], kind.dialect->scalars_are_reciprocal);
  return check_block_scales(short_name(scale), linear);
}

/// Scales as fp32, whatever their dtype; each must be finite and > 0.
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
  linear.input_scale = read_input_scale(entries[TensorRole::kInputScale], false);
  return {};
}

/// A value for each row or column of a linear, beside its weights.
Status check_vector(const RawTensor& tensor, std::int64_t count) {
  if (is_wide_float(tensor.dtype) && tensor.shape.size() == 1 && tensor.shape[0] == count) {
    return {};
  }
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: {} {}, want 16- or 32-bit floats [{}]", short_name(tensor),
                            dtype_name(tensor.dtype), format_shape(tensor.shape), count));
}

Status load_pre_quant_scale(const LinearEntries& entries,
                            const LinearKind& kind,
                            LoadedLinear& linear) {
  const RawTensor* scale = entries[TensorRole::kPreQuantScale];
  if (scale == nullptr) return {};
  HALFBYTE_RETURN_IF_ERROR(check_vector(*scale, kind.cols));
  HALFBYTE_ASSIGN_OR_RETURN(linear.pre_quant_scale, widen_scales(*scale));
  return {};
}

Status load_bias(const LinearEntries& entries, const LinearKind& kind, LoadedLinear& linear) {
  const RawTensor* bias = entries[TensorRole::kBias];
  if (bias == nullptr) return {};
  HALFBYTE_RETURN_IF_ERROR(check_vector(*bias, kind.rows));
  linear.bias.resize(static_cast<std::size_t>(kind.rows));
  widen_to_f32(bias->dtype, bias->bytes.data(), kind.rows, linear.bias.data());
  return {};
}

/// A NaN scale over a block whose codes are all zero means nothing: it becomes zero.
bool clear_if_zero_block(LoadedLinear& linear, std::size_t block) {
  const CanonicalMatrix& matrix = linear.matrix;
  const auto codes = matrix.codes.subspan(block * kCodeBytesPerBlock, kCodeBytesPerBlock);
  const bool is_nan = (matrix.block_scale[block] & kE4m3Nan) == kE4m3Nan;
  const bool is_zero = std::all_of(codes.begin(), codes.end(),
                                   [](std::uint8_t code) { return (code & kCodeMagnitudes) == 0; });
  if (!is_nan || !is_zero) return false;
  if (!linear.owned_block_scale) {
    linear.owned_block_scale = std::make_unique<std::vector<std::uint8_t>>(
        matrix.block_scale.begin(), matrix.block_scale.end());
    linear.matrix.block_scale = *linear.owned_block_scale;
  }
  (*linear.owned_block_scale)[block] = 0;
  return true;
}

/// "row 5, group 1: byte 0x7F is NaN"
std::string describe_bad_block(const CanonicalMatrix& matrix, std::size_t block) {
  const auto groups = static_cast<std::size_t>(matrix.cols / 16);
  const std::uint8_t byte = matrix.block_scale[block];
  return fmt::format("row {}, group {}: byte 0x{:02X} is {}", block / groups, block % groups, byte,
                     (byte & kE4m3Nan) == kE4m3Nan ? "NaN" : "negative");
}

}  // namespace

WeightFormat wide_format(DType dtype) {
  if (dtype == DType::kBf16) return WeightFormat::kBf16;
  return dtype == DType::kF16 ? WeightFormat::kF16 : WeightFormat::kF32;
}

Status check_block_scales(std::string_view tensor_name, LoadedLinear& linear) {
  const std::span<const std::uint8_t> scales = linear.matrix.block_scale;
  // Good bytes are 0x00 to 0x7E: one pass that the compiler vectorises, a second one only if
  // needed.
  std::uint8_t largest = 0;
  for (const std::uint8_t byte : scales)
    largest = std::max(largest, byte);
  if (largest < kE4m3Nan) return {};
  std::string listed;
  std::size_t num_bad = 0;
  for (std::size_t block = 0; block < scales.size(); ++block) {
    if (scales[block] < kE4m3Nan || clear_if_zero_block(linear, block)) continue;
    if (num_bad++ >= kMaxListed) continue;
    listed += (num_bad == 1 ? "" : "; ") + describe_bad_block(linear.matrix, block);
  }
  if (num_bad == 0) return {};
  if (num_bad > kMaxListed) listed += fmt::format("; and {} more", num_bad - kMaxListed);
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: {}; want positive E4M3 values", tensor_name, listed));
}

Status check_fp8_values(const LinearEntries& entries, const LinearKind& kind) {
  const RawTensor& payload = *entries.payload();
  if (payload.dtype != DType::kF8E4m3) return {};
  const auto is_nan = [](std::uint8_t byte) { return (byte & kE4m3Nan) == kE4m3Nan; };
  const auto num_bad = std::count_if(payload.bytes.begin(), payload.bytes.end(), is_nan);
  if (num_bad == 0) return {};
  const auto first = std::find_if(payload.bytes.begin(), payload.bytes.end(), is_nan);
  const std::int64_t at = first - payload.bytes.begin();
  return Status(StatusCode::kCorruptData,
                fmt::format("{}: row {}, column {}: byte 0x{:02X} is NaN ({} such bytes)",
                            short_name(payload), at / kind.cols, at % kind.cols, *first, num_bad));
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
      linear.matrix.format = wide_format(payload.dtype);
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
  // ModelOpt writes it beside NVFP4 weights; what it says holds for any other format.
  HALFBYTE_RETURN_IF_ERROR(load_pre_quant_scale(entries, kind, linear));
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
  std::uint64_t elements = 1;
  for (const std::int64_t dim : tensor.shape)
    elements *= static_cast<std::uint64_t>(dim);
  if (!is_wide_float(tensor.dtype) || elements != static_cast<std::uint64_t>(count)) {
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
