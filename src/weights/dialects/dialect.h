// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_
#define HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_

#include <string_view>

#include "weights/tensor_map.h"

namespace halfbyte {

/// How one producer spells an NVFP4 linear. Payload and block scales are the same bytes in all of
/// them: E2M1 codes [out, in / 2], low nibble = even column; E4M3 [out, in / 16], row-major.
struct Dialect {
  std::string_view name;
  TensorRole global_scale;
  TensorRole input_scale;
  bool scalars_are_reciprocal;  // 2688 / amax instead of amax / 2688
};

extern const Dialect kModelOptDialect;           // payload "weight"
extern const Dialect kCompressedTensorsDialect;  // payload "weight_packed"

}  // namespace halfbyte

#endif  // HALFBYTE_WEIGHTS_DIALECTS_DIALECT_H_
