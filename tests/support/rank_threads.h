// SPDX-License-Identifier: Apache-2.0
//
// Runs one function per rank, each on a thread of its own, connected by the in_process transport.
#ifndef HALFBYTE_TESTS_SUPPORT_RANK_THREADS_H_
#define HALFBYTE_TESTS_SUPPORT_RANK_THREADS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/transport.h"

namespace halfbyte::test {

/// What a group of ranks left behind.
struct RankOutcome {
  std::vector<Status> status;                 // one per rank
  std::vector<std::int64_t> num_collectives;  // one per rank

  bool all_ok() const {
    for (const Status& each : status) {
      if (!each.ok()) return false;
    }
    return true;
  }
  bool equal_collectives() const {
    for (const std::int64_t count : num_collectives) {
      if (count != num_collectives.front()) return false;
    }
    return true;
  }
};

using RankFunction = std::function<Status(int rank, Transport& transport)>;

/// Runs `body` on ranks 0 .. num_ranks - 1 and waits for all. A rank that fails aborts the group,
/// so that no test waits for a deadline because of another rank's mistake.
inline RankOutcome run_ranks(int num_ranks,
                             const RankFunction& body,
                             std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  const auto transports = make_in_process_transports(num_ranks);
  RankOutcome outcome;
  outcome.status.resize(transports.size());
  outcome.num_collectives.resize(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Transport& transport = *transports[rank];
      transport.set_deadline(deadline);
      outcome.status[rank] = body(static_cast<int>(rank), transport);
      if (!outcome.status[rank].ok()) transport.abort(outcome.status[rank]);
      outcome.num_collectives[rank] = transport.num_collectives();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return outcome;
}

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_SUPPORT_RANK_THREADS_H_
