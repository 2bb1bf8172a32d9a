// SPDX-License-Identifier: Apache-2.0
#include "formats/convert.h"

#include <cstring>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/f16.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

// Elements in files have any alignment, so they are copied out one by one.
template <typename Element>
Element load(const void* src, std::int64_t index) {
  Element element;
  std::memcpy(&element,
              static_cast<const std::uint8_t*>(src) + index * std::int64_t{sizeof(Element)},
              sizeof(Element));
  return element;
}

template <typename Element>
void store(void* dst, std::int64_t index, Element element) {
  std::memcpy(static_cast<std::uint8_t*>(dst) + index * std::int64_t{sizeof(Element)}, &element,
              sizeof(Element));
}

DType element_dtype(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNvfp4:
      return DType::kF4E2m1;
    case WeightFormat::kFp8:
      return DType::kF8E4m3;
    case WeightFormat::kBf16:
      return DType::kBf16;
    case WeightFormat::kF16:
      return DType::kF16;
    case WeightFormat::kF32:
      return DType::kF32;
  }
  return DType::kF32;
}

void apply_fp8_scale(const CanonicalMatrix& matrix, std::int64_t row, float* values) {
  const std::int64_t block_cols = matrix.scale_block_cols;
  const std::int64_t scales_per_row = (matrix.cols + block_cols - 1) / block_cols;
  const float* scale = matrix.scale.data() + row / matrix.scale_block_rows * scales_per_row;
  for (std::int64_t col = 0; col < matrix.cols; ++col)
    values[col] *= scale[col / block_cols];
}

}  // namespace

void widen_to_f32(DType dtype, const void* src, std::int64_t count, float* dst) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i)
        dst[i] = f16_to_f32(load<std::uint16_t>(src, i));
      return;
    case DType::kBf16:
      for (std::int64_t i = 0; i < count; ++i)
        dst[i] = bf16_to_f32(load<std::uint16_t>(src, i));
      return;
    case DType::kF8E4m3:
      for (std::int64_t i = 0; i < count; ++i)
        dst[i] = e4m3_to_f32(load<std::uint8_t>(src, i));
      return;
    default:
      return;
  }
}

void narrow_from_f32(DType dtype, const float* src, std::int64_t count, void* dst) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      for (std::int64_t i = 0; i < count; ++i)
        store(dst, i, f32_to_f16(src[i]));
      return;
    case DType::kBf16:
      for (std::int64_t i = 0; i < count; ++i)
        store(dst, i, f32_to_bf16(src[i]));
      return;
    default:
      return;
  }
}

void decode_row(const CanonicalMatrix& matrix, std::int64_t row, float* dst) {
  if (matrix.format == WeightFormat::kNvfp4) {
    decode_nvfp4_row(matrix.codes.data() + row * (matrix.cols / 2),
                     matrix.block_scale.data() + row * (matrix.cols / kNvfp4BlockSize), matrix.cols,
                     dst);
    return;
  }
  const DType dtype = element_dtype(matrix.format);
  widen_to_f32(dtype, matrix.codes.data() + row * matrix.cols * dtype_bytes(dtype), matrix.cols,
               dst);
  if (matrix.format == WeightFormat::kFp8) apply_fp8_scale(matrix, row, dst);
}

void dequantize_row(const CanonicalMatrix& matrix, std::int64_t row, float* dst) {
  decode_row(matrix, row, dst);
  if (matrix.format != WeightFormat::kNvfp4) return;
  for (std::int64_t col = 0; col < matrix.cols; ++col)
    dst[col] *= matrix.global_scale;
}

}  // namespace halfbyte
