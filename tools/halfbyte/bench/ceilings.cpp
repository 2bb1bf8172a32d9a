// SPDX-License-Identifier: Apache-2.0
#include "bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/host_buffer.h"
#include "bench/ceiling_loops.h"
#include "bench/statistics.h"
#include "kernels/cpu/kernel_table.h"

namespace halfbyte::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;  // what a thread reads at a time
constexpr std::int64_t kOperationsPerThread = 1'000'000'000;
constexpr std::int64_t kMultiplyPieces = 8;  // of a thread
constexpr double kWarmUpSeconds = 0.05;
constexpr int kPasses = 3;  // of a measurement

struct Multiplier {
  std::string_view isa;
  MultiplyLoop loop;
  std::int64_t step_operations;
};

// The compiler's cpu model asks cpuid and, through xgetbv, whether the system saves the registers.
Multiplier best_multiplier() {
  if (&cpu::best_kernel_table() == &cpu::kAmxKernels)  // no machine takes it by itself
    return {"amx_int8", multiply_amx, kAmxStepOperations};
  if (__builtin_cpu_supports("avx512vnni"))
    return {"avx512_vnni", multiply_avx512_vnni, kAvx512VnniStepOperations};
  if (__builtin_cpu_supports("avxvnni"))
    return {"avx_vnni", multiply_avx_vnni, kAvxVnniStepOperations};
  if (__builtin_cpu_supports("avx2")) return {"avx2", multiply_avx2, kAvx2StepOperations};
  return {"portable", multiply_portable, kPortableStepOperations};
}

std::vector<ReadLoop> read_loops() {
  if (!__builtin_cpu_supports("avx2")) return {read_portable};
  return {read_avx2, read_avx2_4_streams, read_avx2_prefetch};
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class HostCeilingProbe final : public CeilingProbe {
 public:
  HostCeilingProbe(HostBuffer memory, int num_threads)
      : memory_(std::move(memory)), pool_(num_threads) {
    std::memset(memory_.data(), 1, memory_.size());  // untouched pages would all be one page
  }

  void measure() override {
    warm_up();
    for (int pass = 0; pass < kPasses; ++pass) {
      for (std::size_t i = 0; i < reads_.size(); ++i)
        read_gbps_[i].push_back(read_once(reads_[i]));
      int8_gops_.push_back(multiply_once());
    }
  }

  Ceilings ceilings() const override {
    Ceilings ceilings;
    for (const std::vector<double>& passes : read_gbps_)
      ceilings.read_gbps = std::max(ceilings.read_gbps, median(passes));
    ceilings.multiply_gops = median(int8_gops_);
    return ceilings;
  }

  std::string_view isa() const override { return multiplier_.isa; }

 private:
  // A thread that was asleep wakes beside the one that woke it; on a busy machine it takes the
  // system some time to give each a core.
  void warm_up() {
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < kWarmUpSeconds)
      multiply_once();
  }

  double read_once(ReadLoop loop) {
    const auto pieces = static_cast<std::int64_t>(memory_.size()) / kPieceBytes;
    const auto* data = memory_.as<const std::int64_t>();
    const Clock::time_point start = Clock::now();
    pool_.parallel_for(pieces, [&](std::int64_t piece, int) {
      keep_ ^= loop(data + piece * kPieceBytes / 8, kPieceBytes);
    });
    return static_cast<double>(pieces * kPieceBytes) * 1e-9 / seconds_since(start);
  }

  double multiply_once() {
    const std::int64_t pieces = kMultiplyPieces * pool_.num_threads();
    const std::int64_t steps = kOperationsPerThread / kMultiplyPieces / multiplier_.step_operations;
    const Clock::time_point start = Clock::now();
    pool_.parallel_for(pieces,
                       [&](std::int64_t /*piece*/, int) { keep_ ^= multiplier_.loop(steps); });
    const std::int64_t operations = pieces * steps * multiplier_.step_operations;
    return static_cast<double>(operations) * 1e-9 / seconds_since(start);
  }

  HostBuffer memory_;
  ThreadPool pool_;
  std::vector<ReadLoop> reads_ = read_loops();
  Multiplier multiplier_ = best_multiplier();
  std::vector<std::vector<double>> read_gbps_{reads_.size()};  // [loop, pass]
  std::vector<double> int8_gops_;                              // [pass]
  std::atomic<std::int64_t> keep_ = 0;
};

}  // namespace

Result<std::unique_ptr<CeilingProbe>> CeilingProbe::create(std::int64_t bytes, int num_threads) {
  const std::int64_t pieces = std::max<std::int64_t>(1, bytes / kPieceBytes);
  HALFBYTE_ASSIGN_OR_RETURN(HostBuffer memory,
                            HostBuffer::allocate(static_cast<std::size_t>(pieces * kPieceBytes)));
  return std::unique_ptr<CeilingProbe>(
      std::make_unique<HostCeilingProbe>(std::move(memory), num_threads));
}

}  // namespace halfbyte::tool
