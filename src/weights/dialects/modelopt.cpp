// SPDX-License-Identifier: Apache-2.0
#include "weights/dialects/dialect.h"

namespace halfbyte {

const Dialect kModelOptDialect = {.name = "ModelOpt",
                                  .global_scale = TensorRole::kWeightScale2,
                                  .input_scale = TensorRole::kInputScale,
                                  .scalars_are_reciprocal = false};

}  // namespace halfbyte
