// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TENSOR_VIEW_H_
#define HALFBYTE_TENSOR_VIEW_H_

#include <array>
#include <cstdint>

#include "halfbyte/dtype.h"

namespace halfbyte {

enum class DeviceKind : std::int32_t { kHost = 0, kCuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// A row-major matrix [rows, cols] in somebody else's memory. row_stride counts elements.
/// `Pointer` is void* or const void*: use the two aliases below.
template <typename Pointer>
struct BasicMatrixView {
  Pointer data = nullptr;  // may be null when rows is 0
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // in elements; >= cols
  Device device;

  BasicMatrixView() = default;
  BasicMatrixView(
      Pointer pointer, DType type, std::int64_t num_rows, std::int64_t num_cols, Device where = {})
      : data(pointer),
        dtype(type),
        rows(num_rows),
        cols(num_cols),
        row_stride(num_cols),
        device(where) {}
  // A mutable view converts to a const one.
  template <typename Other>
  BasicMatrixView(const BasicMatrixView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data),
        dtype(other.dtype),
        rows(other.rows),
        cols(other.cols),
        row_stride(other.row_stride),
        device(other.device) {}
};

using MatrixView = BasicMatrixView<void*>;
using ConstMatrixView = BasicMatrixView<const void*>;

}  // namespace halfbyte

#endif  // HALFBYTE_TENSOR_VIEW_H_
