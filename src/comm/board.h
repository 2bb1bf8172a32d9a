// SPDX-License-Identifier: Apache-2.0
//
// The memory that ranks of one process share: a barrier, a slot per rank, and the group's failure.
#ifndef HALFBYTE_COMM_BOARD_H_
#define HALFBYTE_COMM_BOARD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "halfbyte/dtype.h"
#include "halfbyte/status.h"

namespace halfbyte {

enum class Collective : std::int32_t {
  kBarrier = 0,
  kBroadcast = 1,
  kAllGather = 2,
  kAllReduce = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
};
std::string_view collective_name(Collective collective);

/// What one rank brings to a collective. Written before the barrier that opens it, read by peers
/// until the barrier that closes it.
struct CollectiveCall {
  Collective collective = Collective::kBarrier;
  std::int32_t detail = 0;  // root, or dtype * 2 + op
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::span<const std::size_t> send_bytes = {};  // kAllToAll
};

/// Shared by the ranks' transports. Thread-safe as far as said below.
class Board {
 public:
  explicit Board(int num_ranks);

  int num_ranks() const { return static_cast<int>(slots_.size()); }
  /// What `rank` brought to the collective that is open.
  const CollectiveCall& call(int rank) const { return slot(rank).call; }

  /// Publishes this rank's call. Its own thread, outside a collective.
  void publish(int rank, const CollectiveCall& call) { slot(rank).call = call; }
  /// Waits until every rank arrived as often as this one. A rank that does not come within the
  /// deadline fails the group. Returns the group's failure, if any.
  Status arrive(int rank, std::chrono::milliseconds deadline);

  /// Brackets the time in which `rank` reads its peers' memory. False: the group has failed,
  /// nothing may be read.
  bool begin_reading(int rank);
  void end_reading(int rank);

  /// The first failure wins. Any thread; returns at once.
  void fail(const Status& why);
  /// Ok, or the group's failure.
  Status failure() const;
  /// The group's failure, once no peer reads this rank's memory any more: after it, the caller may
  /// free its buffers.
  Status leave_failed() const;

 private:
  // A cache line each: ranks poll each other's arrivals.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> arrivals{0};
    std::atomic<bool> reading{false};
    CollectiveCall call;
  };
  Slot& slot(int rank) { return slots_[static_cast<std::size_t>(rank)]; }
  const Slot& slot(int rank) const { return slots_[static_cast<std::size_t>(rank)]; }
  bool wait_for(int rank,
                std::uint64_t arrivals,
                std::chrono::steady_clock::time_point limit) const;

  std::vector<Slot> slots_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Status failure_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_COMM_BOARD_H_
