// SPDX-License-Identifier: Apache-2.0
//
// The in_process transport: expected values are computed beside each call from what every rank is
// known to contribute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "comm/transport.h"
#include "support/rank_threads.h"

namespace halfbyte {
namespace {

using std::chrono::milliseconds;
using test::RankOutcome;
using test::run_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}
template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

milliseconds since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

class InProcess : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, InProcess, ::testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(InProcess, BroadcastGivesEveryRankTheRootsBytes) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    for (int root = 0; root < ranks; ++root) {
      std::vector<std::int32_t> message(33, rank == root ? 7 + root : -1);
      HALFBYTE_RETURN_IF_ERROR(transport.broadcast(bytes_of(message), root));
      EXPECT_EQ(message, std::vector<std::int32_t>(33, 7 + root)) << "rank " << rank;
    }
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
  EXPECT_TRUE(outcome.equal_collectives());
  EXPECT_EQ(outcome.num_collectives[0], ranks);
}

TEST_P(InProcess, AllGatherPlacesBlocksInRankOrder) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    const std::vector<std::int32_t> in = {rank, rank * 10, rank * 100};
    std::vector<std::int32_t> out(in.size() * static_cast<std::size_t>(ranks), -1);
    HALFBYTE_RETURN_IF_ERROR(transport.all_gather(bytes_of(in), bytes_of(out), {}));
    for (int peer = 0; peer < ranks; ++peer) {
      const auto at = static_cast<std::size_t>(peer) * 3;
      EXPECT_EQ(out[at], peer);
      EXPECT_EQ(out[at + 2], peer * 100);
    }
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
}

// 1e8 + 1 - 1e8 .. in fp32 depends on the order, so ascending order is visible in the bits.
float contribution(int rank, std::size_t i) {
  return (rank % 2 == 0 ? 1e8F : -1e8F) + static_cast<float>(rank) * 1.37F + static_cast<float>(i);
}

float ascending_sum(int ranks, std::size_t i) {
  float sum = contribution(0, i);
  for (int rank = 1; rank < ranks; ++rank)
    sum += contribution(rank, i);
  return sum;
}

TEST_P(InProcess, AllReduceAddsInAscendingRankOrder) {
  const int ranks = GetParam();
  for (const std::size_t count : {0U, 1U, 5U, 64U, 1000U}) {
    const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
      std::vector<float> buffer(count);
      for (std::size_t i = 0; i < count; ++i)
        buffer[i] = contribution(rank, i);
      HALFBYTE_RETURN_IF_ERROR(
          transport.all_reduce(bytes_of(buffer), DType::kF32, ReduceOp::kSum, {}));
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(buffer[i], ascending_sum(ranks, i));
      return Status();
    });
    EXPECT_TRUE(outcome.all_ok());
    EXPECT_EQ(outcome.num_collectives[0], 1);
  }
}

TEST_P(InProcess, AllReduceTakesMaximaAndKeepsNan) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    std::vector<std::int64_t> counts = {-rank, std::int64_t{rank} << 40};
    HALFBYTE_RETURN_IF_ERROR(
        transport.all_reduce(bytes_of(counts), DType::kI64, ReduceOp::kMax, {}));
    EXPECT_EQ(counts[0], 0);
    EXPECT_EQ(counts[1], std::int64_t{ranks - 1} << 40);
    std::vector<float> values = {static_cast<float>(rank),
                                 rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F};
    HALFBYTE_RETURN_IF_ERROR(
        transport.all_reduce(bytes_of(values), DType::kF32, ReduceOp::kMax, {}));
    EXPECT_EQ(values[0], static_cast<float>(ranks - 1));
    EXPECT_TRUE(std::isnan(values[1]));
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
}

TEST_P(InProcess, ReduceScatterGivesEachRankItsBlock) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    std::vector<float> in(static_cast<std::size_t>(ranks) * 3);
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = contribution(rank, i);
    std::vector<float> out(3);
    HALFBYTE_RETURN_IF_ERROR(
        transport.reduce_scatter(bytes_of(in), bytes_of(out), DType::kF32, {}));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out[i], ascending_sum(ranks, static_cast<std::size_t>(rank) * 3 + i));
    }
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
}

// Rank s sends s + 2 * d bytes to rank d, every third pair nothing.
std::size_t pair_bytes(int src, int dst) {
  return (src + dst) % 3 == 0 ? 0 : static_cast<std::size_t>(src + 2 * dst);
}

TEST_P(InProcess, AllToAllMovesUnevenBlocksAndNone) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    std::vector<std::size_t> send;
    std::vector<std::size_t> recv;
    std::vector<std::uint8_t> in;
    for (int peer = 0; peer < ranks; ++peer) {
      send.push_back(pair_bytes(rank, peer));
      recv.push_back(pair_bytes(peer, rank));
      in.insert(in.end(), send.back(), static_cast<std::uint8_t>(rank * 16 + peer));
    }
    const std::size_t total = std::accumulate(recv.begin(), recv.end(), std::size_t{0});
    std::vector<std::uint8_t> out(total + 1, 0xEE);  // the last byte is a guard
    HALFBYTE_RETURN_IF_ERROR(transport.all_to_all(bytes_of(in), send, bytes_of(out), recv, {}));
    std::vector<std::uint8_t> want;
    for (int peer = 0; peer < ranks; ++peer) {
      want.insert(want.end(), pair_bytes(peer, rank), static_cast<std::uint8_t>(peer * 16 + rank));
    }
    want.push_back(0xEE);
    EXPECT_EQ(out, want);
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
}

TEST_P(InProcess, HundredsOfMixedCallsStayInStep) {
  const int ranks = GetParam();
  const RankOutcome outcome = run_ranks(ranks, [&](int rank, Transport& transport) {
    for (int step = 0; step < 100; ++step) {
      HALFBYTE_RETURN_IF_ERROR(transport.barrier());
      std::vector<std::int64_t> sum = {rank + step};
      HALFBYTE_RETURN_IF_ERROR(
          transport.all_reduce(bytes_of(sum), DType::kI64, ReduceOp::kSum, {}));
      EXPECT_EQ(sum[0], ranks * (ranks - 1) / 2 + ranks * step);
    }
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
  EXPECT_EQ(outcome.num_collectives[0], 200);
  EXPECT_TRUE(outcome.equal_collectives());
}

TEST(InProcessFailure, AnAbsentRankIsNamedWithinTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const RankOutcome outcome = run_ranks(
      4, [&](int rank, Transport& transport) { return rank == 2 ? Status() : transport.barrier(); },
      milliseconds(100));
  EXPECT_LT(since(start), milliseconds(2000));
  for (const int rank : {0, 1, 3}) {
    const Status& status = outcome.status[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kTransportError);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("100 ms"), HasSubstr("barrier"), HasSubstr("for rank 2")));
  }
}

TEST(InProcessFailure, EveryLaterCallReturnsTheFirstCause) {
  const RankOutcome outcome = run_ranks(2, [&](int rank, Transport& transport) {
    if (rank == 1) {
      transport.abort({StatusCode::kDeviceError, "the device fell off the bus"});
      transport.abort({StatusCode::kInternal, "a later cause"});
    }
    std::vector<float> buffer(4);
    for (int call = 0; call < 3; ++call) {
      const Status status = call == 0   ? transport.barrier()
                            : call == 1 ? transport.broadcast(bytes_of(buffer), 0)
                                        : transport.poll();
      EXPECT_EQ(status.code(), StatusCode::kDeviceError);
      EXPECT_EQ(status.message(), "the device fell off the bus");
    }
    EXPECT_EQ(transport.num_collectives(), 0);
    return Status();
  });
  EXPECT_TRUE(outcome.all_ok());
}

TEST(InProcessFailure, AbortFromAnotherThreadEndsAWaitAtOnce) {
  const auto transports = make_in_process_transports(2);
  Status waited;
  std::thread waiter([&] { waited = transports[0]->barrier(); });
  std::this_thread::sleep_for(milliseconds(20));
  const auto start = std::chrono::steady_clock::now();
  transports[1]->abort({StatusCode::kCancelled, "shutting down"});
  waiter.join();
  EXPECT_LT(since(start), milliseconds(1000));  // the wait's own limit is 10 s
  EXPECT_EQ(waited.code(), StatusCode::kCancelled);
  EXPECT_EQ(transports[1]->poll().message(), "shutting down");
}

// After a failed call returns, its buffers are the caller's again: AddressSanitizer and
// ThreadSanitizer watch this one.
TEST(InProcessFailure, BuffersMayBeFreedAfterAnAbortInTheMiddle) {
  for (int round = 0; round < 20; ++round) {
    const auto transports = make_in_process_transports(3);
    std::vector<std::thread> threads;
    for (const auto& transport : transports) {
      threads.emplace_back([&transport] {
        for (int step = 0; step < 1000; ++step) {
          const std::vector<std::int32_t> in(4096, step);
          std::vector<std::int32_t> out(3 * in.size());
          if (!transport->all_gather(bytes_of(in), bytes_of(out), {}).ok()) return;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    transports[0]->abort({StatusCode::kCancelled, "stop"});
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(transports[2]->poll().code(), StatusCode::kCancelled);
  }
}

TEST(InProcessFailure, CountsThatDisagreeFailEveryRankWithBothNumbers) {
  const RankOutcome outcome = run_ranks(2, [&](int rank, Transport& transport) {
    const std::vector<std::byte> in(64);
    std::vector<std::byte> out(64);
    const std::vector<std::size_t> send = {8, 8};
    const std::vector<std::size_t> recv = {8, rank == 0 ? 12U : 8U};
    return transport.all_to_all(in, send, out, recv, {});
  });
  for (const Status& status : outcome.status) {
    EXPECT_EQ(status.code(), StatusCode::kTransportError);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 expects 12 bytes from rank 1, "
                                                         "which sends 8"));
  }
}

TEST(InProcessFailure, UnequalSizesAndDifferentCallsAreFound) {
  const RankOutcome sizes = run_ranks(2, [&](int rank, Transport& transport) {
    const std::vector<std::byte> in(rank == 0 ? 8 : 12);
    std::vector<std::byte> out(2 * in.size());
    return transport.all_gather(in, out, {});
  });
  const RankOutcome calls = run_ranks(2, [&](int rank, Transport& transport) {
    std::vector<std::byte> bytes(8);
    return rank == 0 ? transport.barrier() : transport.broadcast(bytes, 0);
  });
  const RankOutcome roots = run_ranks(2, [&](int rank, Transport& transport) {
    std::vector<std::byte> bytes(8);
    return transport.broadcast(bytes, rank);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(std::string(sizes.status[rank].message()), HasSubstr("equal sizes"));
    EXPECT_THAT(std::string(calls.status[rank].message()),
                AllOf(HasSubstr("barrier"), HasSubstr("broadcast")));
    EXPECT_EQ(roots.status[rank].code(), StatusCode::kTransportError);
  }
}

TEST(InProcessFailure, AWrongCallOnOneRankReachesTheOthersAtOnce) {
  const RankOutcome outcome = run_ranks(2, [&](int rank, Transport& transport) {
    std::vector<std::byte> bytes(8);
    std::vector<std::byte> out(rank == 0 ? 16 : 15);
    return transport.all_gather(bytes, out, {});
  });
  for (const Status& status : outcome.status) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1"), HasSubstr("15 bytes")));
  }
}

TEST(InProcessFailure, OtherArgumentsAreRefusedByName) {
  const auto refused = [](const test::RankFunction& call) {
    return run_ranks(1, call).status[0].to_string();
  };
  std::vector<float> values(3);
  EXPECT_THAT(refused([&](int, Transport& t) { return t.broadcast(bytes_of(values), 1); }),
              HasSubstr("root must be a rank below 1, got 1"));
  EXPECT_THAT(refused([&](int, Transport& t) {
                return t.all_reduce(bytes_of(values), DType::kBf16, ReduceOp::kSum, {});
              }),
              HasSubstr("reduces F32 and I64, got BF16"));
  EXPECT_THAT(refused([&](int, Transport& t) {
                return t.all_reduce(bytes_of(values), DType::kI64, ReduceOp::kSum, {});
              }),
              HasSubstr("12 bytes are not whole elements of 8"));
  const std::vector<std::size_t> none;
  EXPECT_THAT(refused([&](int, Transport& t) { return t.all_to_all({}, none, {}, none, {}); }),
              HasSubstr("needs 1 counts each way, got 0 and 0"));
  const std::vector<std::size_t> four = {4};
  EXPECT_THAT(refused([&](int, Transport& t) { return t.all_to_all({}, four, {}, four, {}); }),
              HasSubstr("buffers of 0 and 0"));
}

TEST(Transports, TheListNamesEveryOneAndSaysWhatIsNotBuilt) {
  const std::vector<TransportEntry> entries = list_transports();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].name, "local");
  EXPECT_TRUE(entries[0].available.ok());
  EXPECT_EQ(entries[1].name, "nccl");
  EXPECT_EQ(entries[1].available.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(entries[1].available.message()), HasSubstr("not built"));
  EXPECT_EQ(entries[2].name, "mpi");
  EXPECT_THAT(std::string(entries[2].available.message()), HasSubstr("not built"));
  EXPECT_EQ(entries[3].name, "in_process");
  EXPECT_TRUE(entries[3].available.ok());
}

}  // namespace
}  // namespace halfbyte
