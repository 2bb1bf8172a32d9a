// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_
#define HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_

#include <array>
#include <string_view>

#include "weights/tensor_map.h"

namespace halfbyte {

/// How one producer spells an NVFP4 linear. Payload and block scales are the same bytes in all of
/// them: E2M1 codes [out, in / 2], low nibble = even column; E4M3 [out, in / 16], row-major.
struct Dialect {
  std::string_view name;
  TensorRole payload;
  TensorRole global_scale;
  TensorRole input_scale;
  bool scalars_are_reciprocal;  // 2688 / amax instead of amax / 2688
};

extern const Dialect kModelOptDialect;           // modelopt.cpp
extern const Dialect kCompressedTensorsDialect;  // compressed_tensors.cpp

/// Every dialect, in the order in which a module's tensors are tried.
inline constexpr std::array<const Dialect*, 2> kDialects = {&kModelOptDialect,
                                                            &kCompressedTensorsDialect};

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_
