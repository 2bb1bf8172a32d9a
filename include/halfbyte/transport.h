// SPDX-License-Identifier: Apache-2.0
//
// Ranks for MoeLayers of your own: threads of one process, each with one end of a transport.
#ifndef HALFBYTE_TRANSPORT_H_
#define HALFBYTE_TRANSPORT_H_

#include <chrono>
#include <memory>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// One rank's end. Thread rule: its rank's thread, except abort_ranks().
class Transport;

/// A call that waits longer than this for another rank fails, naming it, and so do later ones.
inline constexpr std::chrono::milliseconds kDefaultRankDeadline = std::chrono::seconds(10);

/// Ends of a group of `num_ranks` connected threads, in the order of their ranks; each goes to
/// MoeLayer::create() of its rank and outlives that layer. kInvalidArgument: num_ranks < 1, a
/// deadline that is not positive.
Result<std::vector<std::shared_ptr<Transport>>> make_in_process_ranks(
    int num_ranks, std::chrono::milliseconds deadline = kDefaultRankDeadline);

/// Lets every rank's current and later calls fail with `why`: what a rank that stops early owes
/// those that would wait for it. Any thread; returns at once.
void abort_ranks(Transport& transport, const Status& why);

}  // namespace halfbyte

#endif  // HALFBYTE_TRANSPORT_H_
