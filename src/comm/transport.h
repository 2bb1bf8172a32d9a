// SPDX-License-Identifier: Apache-2.0
//
// Collectives between ranks; nothing about MoE.
#ifndef HALFBYTE_COMM_TRANSPORT_H_
#define HALFBYTE_COMM_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/dtype.h"
#include "halfbyte/result.h"

namespace halfbyte {

namespace device {
class Stream;
}

/// Where a collective's buffers live: host memory, or device memory in the order of a stream.
struct Lane {
  device::Stream* stream = nullptr;  // null: host
};

enum class ReduceOp : std::int32_t { kSum = 0, kMax = 1 };

/// One rank's end of a group of ranks. Every rank makes the same calls in the same order; a call
/// that waits longer than the deadline, or whose peer aborted, returns kTransportError naming the
/// rank waited for, and every later call returns the same. Thread rule: the rank's thread only,
/// except abort().
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  /// Limit of each wait of the calls below; 10 s unless set.
  virtual void set_deadline(std::chrono::milliseconds deadline) = 0;

  virtual Status barrier() = 0;
  /// Same size on all ranks; host memory.
  virtual Status broadcast(std::span<std::byte> bytes, int root) = 0;
  /// out = in of rank 0, in of rank 1, ..; out.size() == num_ranks * in.size(), equal on all ranks.
  virtual Status all_gather(std::span<const std::byte> in, std::span<std::byte> out, Lane lane) = 0;
  /// In place, ranks added in ascending order: the same bits on every rank. kF32, kI64 (host lane).
  virtual Status all_reduce(std::span<std::byte> buffer, DType dtype, ReduceOp op, Lane lane) = 0;
  /// in: num_ranks blocks; out: the sum of every rank's block number rank().
  virtual Status reduce_scatter(std::span<const std::byte> in,
                                std::span<std::byte> out,
                                DType dtype,
                                Lane lane) = 0;
  /// send_bytes[r] consecutive bytes of `in` go to rank r; recv_bytes[r] arrive from it. Zero is
  /// allowed; counts that do not match the peer's are kTransportError.
  virtual Status all_to_all(std::span<const std::byte> in,
                            std::span<const std::size_t> send_bytes,
                            std::span<std::byte> out,
                            std::span<const std::size_t> recv_bytes,
                            Lane lane) = 0;

  /// Ok, or why the group has failed.
  virtual Status poll() = 0;
  /// Makes every rank's current and later calls return `why`. Any thread; returns at once;
  /// idempotent.
  virtual void abort(const Status& why) = 0;
  /// Collectives finished on this rank; tests hold ranks to equal numbers.
  virtual std::int64_t num_collectives() const = 0;
};

/// One Transport per rank, connected inside this process; ranks are threads.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(int num_ranks);

/// A transport that this build knows, and why it cannot be used (ok: it can). In order of
/// preference.
struct TransportEntry {
  std::string name;  // local, nccl, mpi, in_process
  Status available;
};
std::vector<TransportEntry> list_transports();

}  // namespace halfbyte

#endif  // HALFBYTE_COMM_TRANSPORT_H_
