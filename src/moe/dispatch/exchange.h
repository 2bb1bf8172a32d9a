// SPDX-License-Identifier: Apache-2.0
//
// Partial sums on the wire, and their way home.
#ifndef HALFBYTE_MOE_DISPATCH_EXCHANGE_H_
#define HALFBYTE_MOE_DISPATCH_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "moe/dispatch/token_table.h"
#include "moe/dispatcher.h"

namespace halfbyte {

/// Everything combine was given.
struct CombineCall {
  const DispatchPlan& plan;
  Workspace workspace;
  TokenTable table;
  const ExpertOutput& output;
  const SharedExpert& shared;
  MatrixView y;
  Transport& transport;
  std::int64_t num_tokens = 0;  // of this rank
};

/// Bytes to and from each of the tp ranks, and a read position per rank; in the workspace.
struct PeerBytes {
  std::span<std::size_t> send, recv, cursor;
};
void add_peer_bytes(DispatchPlan& plan);
PeerBytes peer_bytes(const DispatchPlan& plan, Workspace workspace);
/// Sets each cursor to where that rank's block begins in what was received.
void rewind_cursors(const PeerBytes& peers);

/// Bytes of a partial sum on the wire.
std::size_t wire_bytes(const DispatchPlan& plan);
/// Rounds `sum` [H] to the wire's dtype.
void write_wire_row(const DispatchPlan& plan, const float* sum, std::byte* dst);
/// Rounds `sum` [H] to what the wire can hold, for reductions in fp32. `scratch` holds [H].
void round_to_wire(const DispatchPlan& plan, float* sum, float* scratch);
/// The wire row as fp32: where it lies, or widened into `wide` [H].
const float* read_wire_row(const DispatchPlan& plan, const std::byte* src, float* wide);

/// Joins the partial sums of home token `token_idx`, whose ids are `topk_idx` [top_k], and writes
/// its row of y. Each rank that owns one of the ids has sent one wire row; the next one of rank r
/// lies at received + peers.cursor[r], which moves on.
void finish_home_token(const CombineCall& call,
                       std::int64_t token_idx,
                       const std::int32_t* topk_idx,
                       const std::byte* received,
                       const PeerBytes& peers);

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_DISPATCH_EXCHANGE_H_
