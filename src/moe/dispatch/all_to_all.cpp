// SPDX-License-Identifier: Apache-2.0
//
// Between hosts the counts are known before the rows travel, so only rows that were sent exist on
// the receiving side: there are no stale rows to mark. Source s's rows follow those of source s -
// 1, in the order of its tokens, and partial sums go back in the same order, so neither way needs a
// map.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "kernels/reference/combine.h"
#include "moe/dispatch/dispatchers.h"
#include "moe/dispatch/exchange.h"
#include "moe/dispatch/payload.h"
#include "moe/dispatch/rank_map.h"
#include "moe/dispatch/row_sums.h"
#include "moe/dispatch/step.h"

namespace halfbyte {
namespace {

constexpr std::size_t kBufferAlignment = 128;

class AllToAllDispatcher final : public Dispatcher {
 public:
  explicit AllToAllDispatcher(Transport* transport) : transport_(transport) {}

  std::string_view name() const override { return "all_to_all"; }
  Status can_run(const DispatchPlan& request) const override;
  Result<DispatchPlan> plan(DispatchPlan request) const override;
  Result<DispatchedTokens> dispatch(const DispatchPlan& plan,
                                    const DispatchInput& input,
                                    Workspace workspace,
                                    device::Stream* stream) override;
  Status combine(const DispatchPlan& plan,
                 const DispatchedTokens& tokens,
                 const ExpertOutput& output,
                 const SharedExpert& shared,
                 MatrixView y,
                 Workspace workspace,
                 device::Stream* stream) override;
  std::int64_t last_dropped_routes() const override { return dropped_routes_; }

 private:
  Transport* transport_;
  DispatchStep step_;
  std::int64_t dropped_routes_ = 0;
};

// Rows to and from each rank in this step, and the last token that was sent to it; in the
// workspace.
struct PeerRows {
  std::span<std::int64_t> sent, received, last_token;
};

PeerRows peer_rows(const DispatchPlan& plan, Workspace workspace) {
  const auto ranks = static_cast<std::size_t>(plan.tp_size);
  auto* first = workspace_buffer_as<std::int64_t>(plan, workspace, "peer_rows");
  return {{first, ranks}, {first + ranks, ranks}, {first + 2 * ranks, ranks}};
}

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Calls visit(rank) once for each distinct rank that owns one of the token's ids.
template <typename Visit>
void for_each_destination(const DispatchPlan& plan,
                          const std::int32_t* topk_idx,
                          std::int64_t token_idx,
                          std::span<std::int64_t> last_token,
                          Visit visit) {
  for (std::int64_t slot = 0; slot < plan.spec.top_k; ++slot) {
    const std::int32_t expert_idx = topk_idx[slot];
    if (expert_idx < 0 || expert_idx >= plan.spec.num_experts) continue;
    const auto rank = static_cast<std::size_t>(
        reference::expert_owner(expert_idx, plan.spec.num_experts, plan.ep_size));
    if (last_token[rank] == token_idx) continue;
    last_token[rank] = token_idx;
    visit(rank);
  }
}

void count_sent(const DispatchPlan& plan, const DispatchInput& input, const PeerRows& peers) {
  std::ranges::fill(peers.sent, 0);
  std::ranges::fill(peers.last_token, -1);
  for (std::int64_t token = 0; token < input.x.rows; ++token) {
    for_each_destination(plan, input.routing.topk_idx.data() + token * plan.spec.top_k, token,
                         peers.last_token, [&](std::size_t rank) { ++peers.sent[rank]; });
  }
}

// Packs every token once and copies the row to its other destinations. cursor: where each rank's
// block of `send` begins; it moves on.
void pack_tokens(const DispatchPlan& plan,
                 const DispatchInput& input,
                 const PeerRows& peers,
                 std::span<std::size_t> cursor,
                 float* wide,
                 std::byte* send) {
  const auto row_bytes = static_cast<std::size_t>(plan.dispatch_bytes_per_token);
  std::ranges::fill(peers.last_token, -1);
  for (std::int64_t token = 0; token < input.x.rows; ++token) {
    const std::byte* packed = nullptr;
    for_each_destination(plan, input.routing.topk_idx.data() + token * plan.spec.top_k, token,
                         peers.last_token, [&](std::size_t rank) {
                           std::byte* row = send + cursor[rank];
                           cursor[rank] += row_bytes;
                           if (packed == nullptr) {
                             pack_token(plan, input, token, wide, row);
                             packed = row;
                           } else {
                             std::memcpy(row, packed, row_bytes);
                           }
                         });
  }
}

void set_bytes(std::span<const std::int64_t> rows,
               std::int64_t row_bytes,
               std::span<std::size_t> bytes) {
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    bytes[rank] = static_cast<std::size_t>(rows[rank] * row_bytes);
  }
}

// Tells every rank how many rows it will get.
Status exchange_counts(const DispatchPlan& plan,
                       const DispatchInput& input,
                       const PeerRows& rows,
                       const PeerBytes& bytes,
                       Transport& transport) {
  std::ranges::fill(bytes.send, sizeof(std::int64_t));
  std::ranges::fill(bytes.recv, sizeof(std::int64_t));
  HALFBYTE_RETURN_IF_ERROR(transport.all_to_all(
      std::as_bytes(rows.sent), bytes.send, std::as_writable_bytes(rows.received), bytes.recv, {}));
  for (std::size_t rank = 0; rank < rows.received.size(); ++rank) {
    const std::int64_t most =
        input.tokens_per_rank.empty() ? input.x.rows : input.tokens_per_rank[rank];
    if (rows.received[rank] >= 0 && rows.received[rank] <= most) continue;
    Status corrupt(StatusCode::kCorruptData,
                   fmt::format("rank {} announces {} rows to rank {}, it has {} tokens", rank,
                               rows.received[rank], plan.rank, most));
    transport.abort(corrupt);
    return corrupt;
  }
  return {};
}

// Sends the packed rows and lets the others' arrive one after another.
Status exchange_rows(const DispatchPlan& plan,
                     const DispatchInput& input,
                     Workspace workspace,
                     Transport& transport) {
  const PeerRows rows = peer_rows(plan, workspace);
  const PeerBytes bytes = peer_bytes(plan, workspace);
  count_sent(plan, input, rows);
  HALFBYTE_RETURN_IF_ERROR(exchange_counts(plan, input, rows, bytes, transport));
  set_bytes(rows.sent, plan.dispatch_bytes_per_token, bytes.send);
  set_bytes(rows.received, plan.dispatch_bytes_per_token, bytes.recv);
  std::exclusive_scan(bytes.send.begin(), bytes.send.end(), bytes.cursor.begin(), std::size_t{0});
  std::byte* send = workspace_buffer(plan, workspace, "send");
  pack_tokens(plan, input, rows, bytes.cursor, token_table(plan, workspace).row_sum, send);
  const auto total = [&](std::span<const std::int64_t> counts) {
    return static_cast<std::size_t>(sum_of(counts) * plan.dispatch_bytes_per_token);
  };
  return transport.all_to_all(
      {send, total(rows.sent)}, bytes.send,
      {workspace_buffer(plan, workspace, "dispatch_receive"), total(rows.received)}, bytes.recv,
      {});
}

// x as given is read where it arrived, between the other fields; NVFP4 rows are taken apart.
DispatchedTokens take_rows(const DispatchPlan& plan, Workspace workspace) {
  const TokenTable table = token_table(plan, workspace);
  const TokenRows rows = token_rows(plan, workspace, false);
  const std::byte* receive = workspace_buffer(plan, workspace, "dispatch_receive");
  const std::int64_t num_rows = sum_of(peer_rows(plan, workspace).received);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    unpack_token(plan, receive + row * plan.dispatch_bytes_per_token, row, table, rows);
  }
  DispatchedTokens tokens = group_table(plan, num_rows, table);
  set_token_rows(plan, rows, tokens);
  if (plan.payload == Payload::kAsGiven) {
    tokens.x.data = receive;
    tokens.x.row_stride = plan.dispatch_bytes_per_token / dtype_bytes(plan.spec.x_dtype);
  }
  return tokens;
}

Status AllToAllDispatcher::can_run(const DispatchPlan& request) const {
  HALFBYTE_RETURN_IF_ERROR(check_rank_map(request));
  if (request.ep_size != request.tp_size || request.dp_size != request.tp_size) {
    return {StatusCode::kInvalidArgument,
            fmt::format("all-to-all needs ep and dp equal to tp, got tp {} ep {} dp {}",
                        request.tp_size, request.ep_size, request.dp_size)};
  }
  return check_payload(request);
}

Result<DispatchPlan> AllToAllDispatcher::plan(DispatchPlan request) const {
  HALFBYTE_RETURN_IF_ERROR(can_run(request));
  request.dispatcher = name();
  request.workspace = {};
  const std::int64_t tokens = request.max_tokens_per_rank;
  HALFBYTE_RETURN_IF_ERROR(set_capacity(request, tokens * request.ep_size));
  const auto ranks = static_cast<std::size_t>(request.ep_size);
  const std::int64_t copies = std::min<std::int64_t>(request.ep_size, request.spec.top_k);
  const std::int64_t dispatch_bytes = request.capacity_tokens * request.dispatch_bytes_per_token;
  const std::int64_t combine_bytes = request.capacity_tokens * request.combine_bytes_per_token;
  add_token_table(request);
  add_token_rows(request, false);
  add_peer_bytes(request);
  WorkspaceLayout& layout = request.workspace;
  layout.add("peer_rows", 3 * ranks * sizeof(std::int64_t));
  layout.add("home_topk_idx",
             static_cast<std::size_t>(tokens * request.spec.top_k) * sizeof(std::int32_t));
  layout.add("send", static_cast<std::size_t>(std::max(
                         tokens * copies * request.dispatch_bytes_per_token, combine_bytes)));
  // The two receive buffers of the scheme, each padded to its alignment.
  const auto padded = [](std::int64_t bytes) {
    return static_cast<std::size_t>(round_up(bytes, kBufferAlignment));
  };
  layout.add("dispatch_receive", padded(dispatch_bytes), kBufferAlignment);
  layout.add("combine_receive", padded(combine_bytes), kBufferAlignment);
  return request;
}

Result<DispatchedTokens> AllToAllDispatcher::dispatch(const DispatchPlan& plan,
                                                      const DispatchInput& input,
                                                      Workspace workspace,
                                                      device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_idle());
  HALFBYTE_RETURN_IF_ERROR(check_transport(plan, transport_));
  HALFBYTE_RETURN_IF_ERROR(check_input(plan, input, workspace));
  HALFBYTE_RETURN_IF_ERROR(check_token_counts(plan, input.tokens_per_rank, input.x.rows));
  HALFBYTE_RETURN_IF_ERROR(check_forward_fits(plan, input.x.rows, input.tokens_per_rank));
  HALFBYTE_RETURN_IF_ERROR(exchange_rows(plan, input, workspace, *transport_));
  // Combine asks which ranks have a part of each token; the caller's ids may be gone by then.
  std::ranges::copy(input.routing.topk_idx,
                    workspace_buffer_as<std::int32_t>(plan, workspace, "home_topk_idx"));
  dropped_routes_ = count_dropped_routes(input.routing.topk_idx, plan.spec.num_experts);
  step_.begin(input.x.rows);
  return take_rows(plan, workspace);
}

// Every row that came has a route here, so every row goes back, to the rank it came from.
void write_partials(const CombineCall& call, std::int64_t num_rows, std::byte* send) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    sum_local_routes(call.plan, call.table, call.output, row, call.table.row_sum);
    write_wire_row(call.plan, call.table.row_sum, send + row * call.plan.combine_bytes_per_token);
  }
}

Status combine_step(const CombineCall& call) {
  const DispatchPlan& plan = call.plan;
  const PeerRows rows = peer_rows(plan, call.workspace);
  const PeerBytes bytes = peer_bytes(plan, call.workspace);
  set_bytes(rows.received, plan.combine_bytes_per_token, bytes.send);
  set_bytes(rows.sent, plan.combine_bytes_per_token, bytes.recv);
  std::byte* send = workspace_buffer(plan, call.workspace, "send");
  std::byte* receive = workspace_buffer(plan, call.workspace, "combine_receive");
  write_partials(call, sum_of(rows.received), send);
  const auto total = [&](std::span<const std::int64_t> counts) {
    return static_cast<std::size_t>(sum_of(counts) * plan.combine_bytes_per_token);
  };
  HALFBYTE_RETURN_IF_ERROR(call.transport.all_to_all({send, total(rows.received)}, bytes.send,
                                                     {receive, total(rows.sent)}, bytes.recv, {}));
  rewind_cursors(bytes);
  const auto* home_idx = workspace_buffer_as<std::int32_t>(plan, call.workspace, "home_topk_idx");
  for (std::int64_t token = 0; token < call.num_tokens; ++token) {
    finish_home_token(call, token, home_idx + token * plan.spec.top_k, receive, bytes);
  }
  return {};
}

Status AllToAllDispatcher::combine(const DispatchPlan& plan,
                                   const DispatchedTokens& /*tokens*/,
                                   const ExpertOutput& output,
                                   const SharedExpert& shared,
                                   MatrixView y,
                                   Workspace workspace,
                                   device::Stream* /*stream*/) {
  HALFBYTE_RETURN_IF_ERROR(step_.check_in_flight());
  HALFBYTE_RETURN_IF_ERROR(check_output(plan, output, shared, y, step_.num_tokens()));
  if (shared.kind == SharedExpert::Kind::kSharded) {
    return {StatusCode::kUnsupported,
            "all-to-all adds the shared expert at each token's home rank: replicate it"};
  }
  HALFBYTE_RETURN_IF_ERROR(combine_step({plan, workspace, token_table(plan, workspace), output,
                                         shared, y, *transport_, step_.num_tokens()}));
  step_.end();
  return {};
}

}  // namespace

std::unique_ptr<Dispatcher> make_all_to_all_dispatcher(Transport* transport) {
  return std::make_unique<AllToAllDispatcher>(transport);
}

}  // namespace halfbyte
