// SPDX-License-Identifier: Apache-2.0
#include "weights/dialects/dialect.h"

namespace halfbyte {

// Its global scales divide the payload, its input scales multiply the activations.
const Dialect kCompressedTensorsDialect = {.name = "compressed-tensors",
                                           .global_scale = TensorRole::kWeightGlobalScale,
                                           .input_scale = TensorRole::kInputGlobalScale,
                                           .scalars_are_reciprocal = true};

}  // namespace halfbyte
