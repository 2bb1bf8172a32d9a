// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint_impl.h"

namespace halfbyte {

void compare_with_config(CheckpointWeights::Impl& impl) {
  (void)impl;
}

}  // namespace halfbyte
