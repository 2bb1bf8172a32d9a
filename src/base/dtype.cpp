// SPDX-License-Identifier: Apache-2.0
#include "halfbyte/dtype.h"

namespace halfbyte {

int dtype_bits(DType dtype) {
  switch (dtype) {
    case DType::kF4E2m1:
      return 4;
    case DType::kF8E4m3:
    case DType::kF8E5m2:
    case DType::kF8E8m0:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 8;
    case DType::kF16:
    case DType::kBf16:
    case DType::kI16:
    case DType::kU16:
      return 16;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 32;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 64;
  }
  return 0;
}

int dtype_bytes(DType dtype) {
  return dtype_bits(dtype) / 8;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBf16:
      return "BF16";
    case DType::kF8E4m3:
      return "F8_E4M3";
    case DType::kF8E5m2:
      return "F8_E5M2";
    case DType::kF8E8m0:
      return "F8_E8M0";
    case DType::kF4E2m1:
      return "F4";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU64:
      return "U64";
    case DType::kU32:
      return "U32";
    case DType::kU16:
      return "U16";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
  }
  return "?";
}

}  // namespace halfbyte
