// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DTYPE_H_
#define HALFBYTE_DTYPE_H_

#include <cstdint>
#include <string_view>

namespace halfbyte {

// Element types of tensors in files and in memory. Stable numbers; add at the end.
enum class DType : std::int32_t {
  kF64 = 0,
  kF32 = 1,
  kF16 = 2,
  kBf16 = 3,
  kF8E4m3 = 4,
  kF8E5m2 = 5,
  kF8E8m0 = 6,
  kF4E2m1 = 7,  // two codes a byte; the shape counts codes
  kI64 = 8,
  kI32 = 9,
  kI16 = 10,
  kI8 = 11,
  kU64 = 12,
  kU32 = 13,
  kU16 = 14,
  kU8 = 15,
  kBool = 16,
};

/// Bits of one element: 4 for kF4E2m1, else a multiple of 8.
int dtype_bits(DType dtype);
/// Bytes of one element; 0 for kF4E2m1.
int dtype_bytes(DType dtype);
/// The safetensors spelling: "BF16", "F8_E4M3".
std::string_view dtype_name(DType dtype);

}  // namespace halfbyte

#endif  // HALFBYTE_DTYPE_H_
