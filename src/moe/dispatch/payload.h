// SPDX-License-Identifier: Apache-2.0
//
// A token on its way to another rank: one packed row, x | block scales | row scale | ids | weights
// (nvfp4-moe 9.4). Fields follow each other without padding, so they are read and written by copy.
#ifndef HALFBYTE_MOE_DISPATCH_PAYLOAD_H_
#define HALFBYTE_MOE_DISPATCH_PAYLOAD_H_

#include <cstddef>
#include <cstdint>

#include "moe/dispatch/token_table.h"
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

/// x as the backend reads it where it need not travel: the caller's, or a weighted copy in the
/// workspace when the spec weights X.
void add_weighted_input(DispatchPlan& plan);
ConstMatrixView weighted_input(const DispatchPlan& plan,
                               const DispatchInput& input,
                               Workspace workspace);

/// Packs token `token_idx` into `dst` [row_bytes]; quantises when the payload is NVFP4. `wide` is
/// scratch [H].
void pack_token(const DispatchPlan& plan,
                const DispatchInput& input,
                std::int64_t token_idx,
                float* wide,
                std::byte* dst);
/// Packs a row that carries no token: ids -1; the rest is never read.
void pack_padding(const DispatchPlan& plan, std::byte* dst);

/// Rows that arrived, as a backend reads them; null where the payload has no such field.
struct TokenRows {
  std::byte* x = nullptr;               // [rows, H] of x's dtype
  std::uint8_t* codes = nullptr;        // [rows, H / 2]
  std::uint8_t* block_scale = nullptr;  // [rows, H / 16]
  float* row_scale = nullptr;           // [rows]
};
/// Adds buffers of plan.capacity_tokens rows to the workspace. `copy_x` false leaves x out, for a
/// dispatcher that lets the backend read x where it arrived.
void add_token_rows(DispatchPlan& plan, bool copy_x);
TokenRows token_rows(const DispatchPlan& plan, Workspace workspace, bool copy_x);
/// Copies the packed row `src` to row `row_idx` of the table and of `rows`.
void unpack_token(const DispatchPlan& plan,
                  const std::byte* src,
                  std::int64_t row_idx,
                  const TokenTable& table,
                  const TokenRows& rows);
/// Points `tokens` at `rows`.
void set_token_rows(const DispatchPlan& plan, const TokenRows& rows, DispatchedTokens& tokens);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_PAYLOAD_H_
