// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "moe/dispatch/payload.h"
#include "moe/dispatch/rank_map.h"
#include "moe/dispatch/row_sums.h"
#include "moe/dispatch/standard.h"

namespace halfbyte {
namespace {

// Tokens [first, first + count) of every group travel together; those past a group's own count are
// padding. The ranks of a group hold the same tokens, so each sends a slice of them.
struct Window {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t slice = 0;  // tokens a rank sends
};

// First row of each group, and the number of rows; [dp + 1].
std::span<std::int64_t> group_rows(const DispatchPlan& plan, Workspace workspace) {
  return {workspace_buffer_as<std::int64_t>(plan, workspace, "group_rows"),
          static_cast<std::size_t>(plan.dp_size) + 1};
}

std::int64_t most_tokens(std::span<const std::int64_t> rows) {
  std::int64_t most = 0;
  for (std::size_t group = 0; group + 1 < rows.size(); ++group) {
    most = std::max(most, rows[group + 1] - rows[group]);
  }
  return most;
}

// Calls `step` for each window; every rank sees the same counts, so all take equally many.
template <typename Step>
Status for_each_window(const DispatchPlan& plan, std::span<const std::int64_t> rows, Step step) {
  const std::int64_t most = most_tokens(rows);
  const std::int64_t size = window_tokens(plan);
  for (std::int64_t first = 0; first < most; first += size) {
    const std::int64_t count = std::min(size, most - first);
    HALFBYTE_RETURN_IF_ERROR(
        step(Window{first, count, ceil_div(count, std::int64_t{dp_group_size(plan)})}));
  }
  return {};
}

// Tokens of `group` inside the window.
std::int64_t tokens_in(const Window& window, std::span<const std::int64_t> rows, int group) {
  const auto index = static_cast<std::size_t>(group);
  return std::clamp<std::int64_t>(rows[index + 1] - rows[index] - window.first, 0, window.count);
}

void pack_slice(const DispatchPlan& plan,
                const DispatchInput& input,
                const Window& window,
                float* wide,
                std::byte* send) {
  const auto row_bytes = static_cast<std::size_t>(plan.dispatch_bytes_per_token);
  const std::int64_t begin = window.first + plan.rank % dp_group_size(plan) * window.slice;
  for (std::int64_t i = 0; i < window.slice; ++i) {
    std::byte* row = send + static_cast<std::size_t>(i) * row_bytes;
    if (begin + i < input.x.rows) {
      pack_token(plan, input, begin + i, wide, row);
    } else {
      pack_padding(plan, row);
    }
  }
}

void unpack_window(const DispatchPlan& plan,
                   const Window& window,
                   std::span<const std::int64_t> rows,
                   Workspace workspace) {
  const TokenTable table = token_table(plan, workspace);
  const TokenRows token_buffers = token_rows(plan, workspace, true);
  const std::byte* receive = workspace_buffer(plan, workspace, "receive");
  for (int group = 0; group < plan.dp_size; ++group) {
    const std::int64_t block = group * dp_group_size(plan) * window.slice;
    const std::int64_t row = rows[static_cast<std::size_t>(group)] + window.first;
    for (std::int64_t i = 0; i < tokens_in(window, rows, group); ++i) {
      unpack_token(plan, receive + (block + i) * plan.dispatch_bytes_per_token, row + i, table,
                   token_buffers);
    }
  }
}

// Writes the partial sums of one group's tokens in the window; returns the bytes.
std::size_t write_group_partials(const CombineCall& call,
                                 const Window& window,
                                 std::span<const std::int64_t> rows,
                                 int group,
                                 std::byte* dst) {
  const std::byte* begin = dst;
  const std::int64_t row = rows[static_cast<std::size_t>(group)] + window.first;
  for (std::int64_t i = 0; i < tokens_in(window, rows, group); ++i) {
    if (!sum_local_routes(call.plan, call.table, call.output, row + i, call.table.row_sum))
      continue;
    write_wire_row(call.plan, call.table.row_sum, dst);
    dst += wire_bytes(call.plan);
  }
  return static_cast<std::size_t>(dst - begin);
}

// Every rank of a group gets the same block.
void write_partials(const CombineCall& call,
                    const Window& window,
                    std::span<const std::int64_t> rows,
                    const PeerBytes& peers) {
  std::byte* dst = workspace_buffer(call.plan, call.workspace, "send");
  for (std::size_t rank = 0; rank < peers.send.size(); ++rank) {
    const int group = dp_group(call.plan, static_cast<int>(rank));
    if (rank > 0 && group == dp_group(call.plan, static_cast<int>(rank) - 1)) {
      peers.send[rank] = peers.send[rank - 1];
      std::memcpy(dst, dst - peers.send[rank], peers.send[rank]);
    } else {
      peers.send[rank] = write_group_partials(call, window, rows, group, dst);
    }
    dst += peers.send[rank];
  }
}

// A rank sends a token's partial sum when it owns one of its ids: the ids say how much will come.
void count_expected(const CombineCall& call,
                    const std::int32_t* topk_idx,
                    std::int64_t count,
                    const PeerBytes& peers) {
  const DispatchPlan& plan = call.plan;
  for (std::size_t rank = 0; rank < peers.recv.size(); ++rank) {
    peers.recv[rank] = 0;
    const int ep_rank = static_cast<int>(rank) / moe_tp_size(plan);
    for (std::int64_t i = 0; i < count; ++i) {
      if (has_expert_on(plan, topk_idx + i * plan.spec.top_k, ep_rank)) {
        peers.recv[rank] += wire_bytes(plan);
      }
    }
  }
}

Status combine_window(const CombineCall& call,
                      const Window& window,
                      std::span<const std::int64_t> rows) {
  const DispatchPlan& plan = call.plan;
  const int home = dp_group(plan, plan.rank);
  const std::int64_t count = tokens_in(window, rows, home);
  const std::int64_t first_row = rows[static_cast<std::size_t>(home)] + window.first;
  const std::int32_t* home_idx = call.table.topk_idx + first_row * plan.spec.top_k;
  const PeerBytes peers = peer_bytes(plan, call.workspace);
  write_partials(call, window, rows, peers);
  count_expected(call, home_idx, count, peers);
  const auto total = [](std::span<const std::size_t> bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  };
  std::byte* receive = workspace_buffer(plan, call.workspace, "receive");
  HALFBYTE_RETURN_IF_ERROR(
      call.transport.all_to_all({workspace_buffer(plan, call.workspace, "send"), total(peers.send)},
                                peers.send, {receive, total(peers.recv)}, peers.recv, {}));
  rewind_cursors(peers);
  for (std::int64_t i = 0; i < count; ++i) {
    finish_home_token(call, window.first + i, home_idx + i * plan.spec.top_k, receive, peers);
  }
  return {};
}

Status combine_window_fast(const CombineCall& call,
                           const Window& window,
                           std::span<const std::int64_t> rows) {
  const DispatchPlan& plan = call.plan;
  const std::int64_t cols = plan.spec.hidden_size;
  auto* send = workspace_buffer_as<float>(plan, call.workspace, "send");
  for (int group = 0; group < plan.dp_size; ++group) {
    for (std::int64_t i = 0; i < window.count; ++i) {
      float* row = send + (group * window.count + i) * cols;
      const bool present =
          i < tokens_in(window, rows, group) &&
          sum_local_routes(plan, call.table, call.output,
                           rows[static_cast<std::size_t>(group)] + window.first + i, row);
      if (!present) std::fill_n(row, cols, 0.0F);
      round_to_wire(plan, row, call.table.wide_rows);
    }
  }
  auto* sums = workspace_buffer_as<float>(plan, call.workspace, "receive");
  const std::size_t bytes = static_cast<std::size_t>(window.count * cols) * sizeof(float);
  const auto ranks = static_cast<std::size_t>(plan.tp_size);
  HALFBYTE_RETURN_IF_ERROR(
      call.transport.reduce_scatter({reinterpret_cast<const std::byte*>(send), bytes * ranks},
                                    {reinterpret_cast<std::byte*>(sums), bytes}, DType::kF32, {}));
  const std::int64_t count = tokens_in(window, rows, dp_group(plan, plan.rank));
  for (std::int64_t i = 0; i < count; ++i) {
    finish_row(true, sums + i * cols, call.shared, window.first + i, call.y);
  }
  return {};
}

bool reduces_in_transport(const DispatchPlan& plan) {
  return plan.combine_mode == CombineMode::kFast && plan.dp_size == plan.tp_size;
}

}  // namespace

void add_gathered_buffers(DispatchPlan& plan) {
  add_token_rows(plan, true);
  add_peer_bytes(plan);
  plan.workspace.add("group_rows",
                     (static_cast<std::size_t>(plan.dp_size) + 1) * sizeof(std::int64_t));
  const auto ranks = static_cast<std::size_t>(plan.tp_size);
  const std::int64_t window = window_tokens(plan);
  const auto slice = static_cast<std::size_t>(ceil_div(window, std::int64_t{dp_group_size(plan)}));
  const std::size_t dispatch = slice * static_cast<std::size_t>(plan.dispatch_bytes_per_token);
  const std::size_t row = reduces_in_transport(plan)
                              ? static_cast<std::size_t>(plan.spec.hidden_size) * sizeof(float)
                              : wire_bytes(plan);
  const std::size_t combine = ranks * static_cast<std::size_t>(window) * row;
  plan.workspace.add("send", std::max(dispatch, combine));
  plan.workspace.add("receive", std::max(ranks * dispatch, combine));
}

Status gather_tokens(const DispatchPlan& plan,
                     const DispatchInput& input,
                     Workspace workspace,
                     Transport& transport) {
  const std::span<std::int64_t> rows = group_rows(plan, workspace);
  rows[0] = 0;
  std::partial_sum(input.tokens_per_rank.begin(), input.tokens_per_rank.end(), rows.begin() + 1);
  float* wide = token_table(plan, workspace).row_sum;
  std::byte* send = workspace_buffer(plan, workspace, "send");
  std::byte* receive = workspace_buffer(plan, workspace, "receive");
  return for_each_window(plan, rows, [&](const Window& window) -> Status {
    pack_slice(plan, input, window, wide, send);
    const std::size_t bytes = static_cast<std::size_t>(window.slice) *
                              static_cast<std::size_t>(plan.dispatch_bytes_per_token);
    HALFBYTE_RETURN_IF_ERROR(transport.all_gather(
        {send, bytes}, {receive, bytes * static_cast<std::size_t>(plan.tp_size)}, {}));
    unpack_window(plan, window, rows, workspace);
    return {};
  });
}

Status combine_gathered(const CombineCall& call) {
  const std::span<const std::int64_t> rows = group_rows(call.plan, call.workspace);
  return for_each_window(call.plan, rows, [&](const Window& window) {
    return reduces_in_transport(call.plan) ? combine_window_fast(call, window, rows)
                                           : combine_window(call, window, rows);
  });
}

}  // namespace halfbyte
