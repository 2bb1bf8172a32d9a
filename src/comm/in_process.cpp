// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process. A collective is: publish where the data is, barrier, copy from
// the peers, barrier. The second barrier gives the buffers back.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/board.h"
#include "comm/transport.h"

namespace halfbyte {
namespace {

constexpr std::chrono::milliseconds kDefaultDeadline{10'000};

template <typename T>
T load(const std::byte* src) {
  T value;
  std::memcpy(&value, src, sizeof(T));
  return value;
}

template <typename T>
T reduce_pair(T a, T b, ReduceOp op) {
  if (op == ReduceOp::kSum) return a + b;
  return b > a || b != b ? b : a;  // a NaN stays
}

// dst[i] = op over ranks, ascending, of element i at srcs(rank). dst may be one of the sources.
template <typename T, typename Sources>
void reduce_elements(std::size_t bytes, int num_ranks, ReduceOp op, Sources srcs, std::byte* dst) {
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    T value = load<T>(srcs(0) + at);
    for (int rank = 1; rank < num_ranks; ++rank) {
      value = reduce_pair(value, load<T>(srcs(rank) + at), op);
    }
    std::memcpy(dst + at, &value, sizeof(T));
  }
}

template <typename Sources>
void reduce(DType dtype, std::size_t bytes, int ranks, ReduceOp op, Sources srcs, std::byte* dst) {
  if (dtype == DType::kF32) {
    reduce_elements<float>(bytes, ranks, op, srcs, dst);
  } else {
    reduce_elements<std::int64_t>(bytes, ranks, op, srcs, dst);
  }
}

void copy_bytes(std::byte* dst, const std::byte* src, std::size_t bytes) {
  if (bytes > 0 && dst != src) std::memcpy(dst, src, bytes);
}

std::byte* writable(std::span<const std::byte> bytes) {
  return const_cast<std::byte*>(bytes.data());  // the board has one pointer type; peers only read
}

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Board> board, int rank)
      : board_(std::move(board)), rank_(rank) {}

  std::string_view name() const override { return "in_process"; }
  int rank() const override { return rank_; }
  int num_ranks() const override { return board_->num_ranks(); }
  void set_deadline(std::chrono::milliseconds deadline) override { deadline_ = deadline; }

  Status barrier() override;
  Status broadcast(std::span<std::byte> bytes, int root) override;
  Status all_gather(std::span<const std::byte> in, std::span<std::byte> out, Lane lane) override;
  Status all_reduce(std::span<std::byte> buffer, DType dtype, ReduceOp op, Lane lane) override;
  Status reduce_scatter(std::span<const std::byte> in,
                        std::span<std::byte> out,
                        DType dtype,
                        Lane lane) override;
  Status all_to_all(std::span<const std::byte> in,
                    std::span<const std::size_t> send_bytes,
                    std::span<std::byte> out,
                    std::span<const std::size_t> recv_bytes,
                    Lane lane) override;

  Status poll() override { return board_->failure(); }
  void abort(const Status& why) override { board_->fail(why); }
  std::int64_t num_collectives() const override { return num_collectives_; }

 private:
  template <typename Check, typename Copy>
  Status exchange(const CollectiveCall& call, Check check, Copy copy);
  Status check_peers() const;
  Status check_equal_bytes() const;
  Status check_counts(std::span<const std::size_t> recv_bytes) const;
  void receive_all(std::span<const std::size_t> recv_bytes, std::byte* out) const;
  Status refuse(Collective collective, std::string_view reason);
  Status check_lane(Collective collective, Lane lane);
  Status check_reduction(Collective collective, std::size_t bytes, DType dtype);

  std::shared_ptr<Board> board_;
  int rank_;
  std::chrono::milliseconds deadline_ = kDefaultDeadline;
  std::int64_t num_collectives_ = 0;
};

// A wrong call on one rank leaves the others without their partner, so it fails the group: they
// learn the reason at once instead of running into their deadlines.
Status InProcessTransport::refuse(Collective collective, std::string_view reason) {
  board_->fail({StatusCode::kInvalidArgument,
                fmt::format("rank {}: {}: {}", rank_, collective_name(collective), reason)});
  return board_->leave_failed();
}

Status InProcessTransport::check_lane(Collective collective, Lane lane) {
  if (lane.stream == nullptr) return {};
  return refuse(collective, "in_process moves host memory, got a device stream");
}

Status InProcessTransport::check_reduction(Collective collective, std::size_t bytes, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kI64) {
    return refuse(collective, fmt::format("reduces F32 and I64, got {}", dtype_name(dtype)));
  }
  const auto element_bytes = static_cast<std::size_t>(dtype_bytes(dtype));
  if (bytes % element_bytes == 0) return {};
  return refuse(collective,
                fmt::format("{} bytes are not whole elements of {} bytes", bytes, element_bytes));
}

// Every rank must have made the same call.
Status InProcessTransport::check_peers() const {
  const CollectiveCall& mine = board_->call(rank_);
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const CollectiveCall& theirs = board_->call(peer);
    if (theirs.collective != mine.collective || theirs.detail != mine.detail) {
      return {StatusCode::kTransportError,
              fmt::format("rank {} called {} ({}) while rank {} called {} ({})", rank_,
                          collective_name(mine.collective), mine.detail, peer,
                          collective_name(theirs.collective), theirs.detail)};
    }
  }
  return {};
}

Status InProcessTransport::check_equal_bytes() const {
  const CollectiveCall& mine = board_->call(rank_);
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (board_->call(peer).bytes == mine.bytes) continue;
    return {StatusCode::kTransportError,
            fmt::format("{} needs equal sizes: rank {} has {} bytes, rank {} has {}",
                        collective_name(mine.collective), rank_, mine.bytes, peer,
                        board_->call(peer).bytes)};
  }
  return {};
}

Status InProcessTransport::check_counts(std::span<const std::size_t> recv_bytes) const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const std::size_t sent = board_->call(peer).send_bytes[static_cast<std::size_t>(rank_)];
    const std::size_t wanted = recv_bytes[static_cast<std::size_t>(peer)];
    if (sent == wanted) continue;
    return {StatusCode::kTransportError,
            fmt::format("all_to_all: rank {} expects {} bytes from rank {}, which sends {}", rank_,
                        wanted, peer, sent)};
  }
  return {};
}

// Publish, barrier, check, copy, barrier. `check` compares what the ranks brought, `copy` reads the
// peers' memory; neither runs once the group has failed.
template <typename Check, typename Copy>
Status InProcessTransport::exchange(const CollectiveCall& call, Check check, Copy copy) {
  if (Status failure = board_->failure(); !failure.ok()) return failure;
  board_->publish(rank_, call);
  HALFBYTE_RETURN_IF_ERROR(board_->arrive(rank_, deadline_));
  if (!board_->begin_reading(rank_)) return board_->leave_failed();
  Status agreed = check_peers();
  if (agreed.ok()) agreed = check();
  if (agreed.ok()) copy();
  board_->end_reading(rank_);
  if (!agreed.ok()) {
    board_->fail(agreed);
    return board_->leave_failed();
  }
  HALFBYTE_RETURN_IF_ERROR(board_->arrive(rank_, deadline_));
  ++num_collectives_;
  return {};
}

Status InProcessTransport::barrier() {
  return exchange({.collective = Collective::kBarrier}, [] { return Status(); }, [] {});
}

Status InProcessTransport::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= num_ranks()) {
    return refuse(Collective::kBroadcast,
                  fmt::format("root must be a rank below {}, got {}", num_ranks(), root));
  }
  const CollectiveCall call = {.collective = Collective::kBroadcast,
                               .detail = root,
                               .data = bytes.data(),
                               .bytes = bytes.size()};
  return exchange(
      call, [this] { return check_equal_bytes(); },
      [&] { copy_bytes(bytes.data(), board_->call(root).data, bytes.size()); });
}

Status InProcessTransport::all_gather(std::span<const std::byte> in,
                                      std::span<std::byte> out,
                                      Lane lane) {
  HALFBYTE_RETURN_IF_ERROR(check_lane(Collective::kAllGather, lane));
  if (out.size() != in.size() * static_cast<std::size_t>(num_ranks())) {
    return refuse(Collective::kAllGather, fmt::format("{} bytes of {} ranks do not fill {} bytes",
                                                      in.size(), num_ranks(), out.size()));
  }
  const CollectiveCall call = {
      .collective = Collective::kAllGather, .data = writable(in), .bytes = in.size()};
  return exchange(
      call, [this] { return check_equal_bytes(); },
      [&] {
        for (int peer = 0; peer < num_ranks(); ++peer) {
          copy_bytes(out.data() + static_cast<std::size_t>(peer) * in.size(),
                     board_->call(peer).data, in.size());
        }
      });
}

// Each rank reduces one slice, in place in its own buffer: nobody else reads that slice there.
// After a barrier the slices are collected from their owners.
Status InProcessTransport::all_reduce(std::span<std::byte> buffer,
                                      DType dtype,
                                      ReduceOp op,
                                      Lane lane) {
  HALFBYTE_RETURN_IF_ERROR(check_lane(Collective::kAllReduce, lane));
  HALFBYTE_RETURN_IF_ERROR(check_reduction(Collective::kAllReduce, buffer.size(), dtype));
  const auto ranks = static_cast<std::size_t>(num_ranks());
  const auto element_bytes = static_cast<std::size_t>(dtype_bytes(dtype));
  const std::size_t elements = buffer.size() / element_bytes;
  const auto slice_begin = [&](std::size_t rank) {
    return elements * rank / ranks * element_bytes;
  };
  const CollectiveCall call = {
      .collective = Collective::kAllReduce,
      .detail = static_cast<std::int32_t>(dtype) * 2 + static_cast<std::int32_t>(op),
      .data = buffer.data(),
      .bytes = buffer.size()};
  const auto own = static_cast<std::size_t>(rank_);
  HALFBYTE_RETURN_IF_ERROR(exchange(
      call, [this] { return check_equal_bytes(); },
      [&] {
        reduce(
            dtype, slice_begin(own + 1) - slice_begin(own), num_ranks(), op,
            [&](int peer) { return board_->call(peer).data + slice_begin(own); },
            buffer.data() + slice_begin(own));
      }));
  --num_collectives_;  // the two exchanges are one collective
  return exchange(
      call, [] { return Status(); },
      [&] {
        for (std::size_t peer = 0; peer < ranks; ++peer) {
          copy_bytes(buffer.data() + slice_begin(peer),
                     board_->call(static_cast<int>(peer)).data + slice_begin(peer),
                     slice_begin(peer + 1) - slice_begin(peer));
        }
      });
}

Status InProcessTransport::reduce_scatter(std::span<const std::byte> in,
                                          std::span<std::byte> out,
                                          DType dtype,
                                          Lane lane) {
  HALFBYTE_RETURN_IF_ERROR(check_lane(Collective::kReduceScatter, lane));
  HALFBYTE_RETURN_IF_ERROR(check_reduction(Collective::kReduceScatter, out.size(), dtype));
  if (in.size() != out.size() * static_cast<std::size_t>(num_ranks())) {
    return refuse(Collective::kReduceScatter, fmt::format("{} blocks of {} bytes are not {} bytes",
                                                          num_ranks(), out.size(), in.size()));
  }
  const CollectiveCall call = {.collective = Collective::kReduceScatter,
                               .detail = static_cast<std::int32_t>(dtype),
                               .data = writable(in),
                               .bytes = in.size()};
  const std::size_t block = static_cast<std::size_t>(rank_) * out.size();
  return exchange(
      call, [this] { return check_equal_bytes(); },
      [&] {
        reduce(
            dtype, out.size(), num_ranks(), ReduceOp::kSum,
            [&](int peer) { return board_->call(peer).data + block; }, out.data());
      });
}

void InProcessTransport::receive_all(std::span<const std::size_t> recv_bytes,
                                     std::byte* out) const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    const CollectiveCall& theirs = board_->call(peer);
    const auto before = theirs.send_bytes.first(static_cast<std::size_t>(rank_));
    const std::size_t offset = std::accumulate(before.begin(), before.end(), std::size_t{0});
    const std::size_t bytes = recv_bytes[static_cast<std::size_t>(peer)];
    copy_bytes(out, theirs.data + offset, bytes);
    out += bytes;
  }
}

Status InProcessTransport::all_to_all(std::span<const std::byte> in,
                                      std::span<const std::size_t> send_bytes,
                                      std::span<std::byte> out,
                                      std::span<const std::size_t> recv_bytes,
                                      Lane lane) {
  HALFBYTE_RETURN_IF_ERROR(check_lane(Collective::kAllToAll, lane));
  const auto ranks = static_cast<std::size_t>(num_ranks());
  if (send_bytes.size() != ranks || recv_bytes.size() != ranks) {
    return refuse(Collective::kAllToAll, fmt::format("needs {} counts each way, got {} and {}",
                                                     ranks, send_bytes.size(), recv_bytes.size()));
  }
  const auto total = [](std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  };
  if (total(send_bytes) > in.size() || total(recv_bytes) > out.size()) {
    return refuse(Collective::kAllToAll,
                  fmt::format("counts ask for {} and {} bytes of buffers of {} and {}",
                              total(send_bytes), total(recv_bytes), in.size(), out.size()));
  }
  const CollectiveCall call = {.collective = Collective::kAllToAll,
                               .data = writable(in),
                               .bytes = in.size(),
                               .send_bytes = send_bytes};
  return exchange(
      call, [&] { return check_counts(recv_bytes); }, [&] { receive_all(recv_bytes, out.data()); });
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(int num_ranks) {
  const int wanted = std::max(num_ranks, 0);
  const auto board = std::make_shared<Board>(wanted);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.reserve(static_cast<std::size_t>(wanted));
  for (int rank = 0; rank < wanted; ++rank) {
    transports.push_back(std::make_unique<InProcessTransport>(board, rank));
  }
  return transports;
}

}  // namespace halfbyte
