// SPDX-License-Identifier: Apache-2.0
#include "comm/board.h"

#include <fmt/format.h>

#include <thread>

namespace halfbyte {
namespace {

// Long enough for a peer that runs on another core, short enough that a peer that waits for this
// core gets it soon: ranks may outnumber cores.
constexpr int kSpinsBeforeYield = 256;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::string_view collective_name(Collective collective) {
  switch (collective) {
    case Collective::kBarrier:
      return "barrier";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
  }
  return "unknown";
}

Board::Board(int num_ranks) : slots_(static_cast<std::size_t>(num_ranks)) {}

bool Board::wait_for(int rank,
                     std::uint64_t arrivals,
                     std::chrono::steady_clock::time_point limit) const {
  const auto arrived = [&] {
    return slot(rank).arrivals.load(std::memory_order_acquire) >= arrivals;
  };
  for (int spin = 0; spin < kSpinsBeforeYield; ++spin) {
    if (arrived()) return true;
    if (failed_.load(std::memory_order_acquire)) return true;  // the caller asks which
    pause_cpu();
  }
  while (!arrived() && !failed_.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() >= limit) return false;
    std::this_thread::yield();
  }
  return true;
}

Status Board::arrive(int rank, std::chrono::milliseconds deadline) {
  // Only this rank writes its counter, so the counters need no reset: that each rank waits for all
  // the others' to reach its own is the barrier.
  const std::uint64_t arrivals = slot(rank).arrivals.load(std::memory_order_relaxed) + 1;
  slot(rank).arrivals.store(arrivals, std::memory_order_release);
  const auto limit = std::chrono::steady_clock::now() + deadline;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (wait_for(peer, arrivals, limit)) continue;
    fail({StatusCode::kTransportError,
          fmt::format("rank {} waited {} ms in {} for rank {}, which did not come", rank,
                      deadline.count(), collective_name(call(rank).collective), peer)});
  }
  if (failed_.load(std::memory_order_acquire)) return leave_failed();
  return {};
}

// The order of the two flags, on both sides, is what makes it safe to free a buffer after a
// failure: a reader raises `reading` before it looks at `failed`, and leave_failed() looks at
// `reading` after `failed` was set. Sequential consistency is needed for that.
bool Board::begin_reading(int rank) {
  slot(rank).reading.store(true, std::memory_order_seq_cst);
  if (!failed_.load(std::memory_order_seq_cst)) return true;
  end_reading(rank);
  return false;
}

void Board::end_reading(int rank) {
  slot(rank).reading.store(false, std::memory_order_seq_cst);
}

void Board::fail(const Status& why) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return;
  failure_ = why.ok() ? Status(StatusCode::kTransportError, "the group was aborted") : why.clone();
  failed_.store(true, std::memory_order_seq_cst);
}

Status Board::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(failure_mutex_);
  return failure_.clone();
}

Status Board::leave_failed() const {
  for (const Slot& peer : slots_) {
    while (peer.reading.load(std::memory_order_seq_cst))
      std::this_thread::yield();
  }
  return failure();
}

}  // namespace halfbyte
