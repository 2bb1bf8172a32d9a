// SPDX-License-Identifier: Apache-2.0
//
// A token on its way to another rank: one packed row, x | block scales | row scale | ids | weights
// (nvfp4-moe 9.4). Fields follow each other without padding, so they are read and written by copy.
#ifndef HALFBYTE_MOE_DISPATCH_PAYLOAD_H_
#define HALFBYTE_MOE_DISPATCH_PAYLOAD_H_

#include <cstddef>
#include <cstdint>

#include "moe/dispatcher.h"

namespace halfbyte {

/// Byte offsets of a packed row's fields. x is [H] elements, or [H / 2] codes.
struct PayloadLayout {
  std::size_t x_bytes = 0;
  std::size_t block_scale = 0, block_scale_bytes = 0;
  std::size_t row_scale = 0, row_scale_bytes = 0;
  std::size_t topk_idx = 0;
  std::size_t topk_weights = 0;
  std::size_t row_bytes = 0;
};
PayloadLayout payload_layout(const DispatchPlan& plan);

/// kUnsupported unless the payload fits the mode: NVFP4 rows only where X is quantised anyway, with
/// the same scale.
Status check_payload(const DispatchPlan& plan);

/// Row `token_idx` of X as it enters the experts, in x's dtype: weighted by its route's weight and
/// rounded when the spec says so (a token without a route keeps its row: it is never read).
/// `wide` is scratch [H].
void write_input_row(const DispatchPlan& plan,
                     const DispatchInput& input,
                     std::int64_t token_idx,
                     float* wide,
                     std::byte* dst);

/// Packs token `token_idx` into `dst` [row_bytes]; quantises when the payload is NVFP4. `wide` is
/// scratch [H].
void pack_token(const DispatchPlan& plan,
                const DispatchInput& input,
                std::int64_t token_idx,
                float* wide,
                std::byte* dst);
/// Packs a row that carries no token: ids -1; the rest is never read.
void pack_padding(const DispatchPlan& plan, std::byte* dst);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_PAYLOAD_H_
