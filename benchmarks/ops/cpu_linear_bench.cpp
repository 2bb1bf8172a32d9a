// SPDX-License-Identifier: Apache-2.0
//
// cpu::linear of one matrix: bytes of weights per second, and multiply-adds. Arguments: rows, cols,
// tokens, threads. Copies are rotated so that weights come from memory, not from the last cache.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/linear.h"

namespace halfbyte::cpu {
namespace {

constexpr std::int64_t kBytesInFlight = std::int64_t{128} << 20;  // above 3 x a 32 MiB cache

struct Nvfp4Weights {
  std::vector<std::uint8_t> codes, block_scale;
  CanonicalMatrix view;

  Nvfp4Weights(std::int64_t rows, std::int64_t cols) {
    std::mt19937 rng(1);
    codes.resize(static_cast<std::size_t>(rows * cols / 2));
    block_scale.resize(static_cast<std::size_t>(rows * cols / 16));
    for (std::uint8_t& byte : codes)
      byte = static_cast<std::uint8_t>(rng() & 0xFFU);
    for (std::uint8_t& byte : block_scale)
      byte = static_cast<std::uint8_t>(rng() % 0x7FU);
    view.rows = rows;
    view.cols = cols;
    view.codes = codes;
    view.block_scale = block_scale;
  }
};

void linear_nvfp4(benchmark::State& state, const KernelTable* kernels) {
  if (!missing_feature(*kernels).empty()) return state.SkipWithError("not on this machine");
  const std::int64_t rows = state.range(0);
  const std::int64_t cols = state.range(1);
  const std::int64_t num_tokens = state.range(2);
  const Nvfp4Weights weights(rows, cols);
  const std::int64_t bytes = rows * cols * 9 / 16;
  std::vector<PackedMatrix> copies;
  for (std::int64_t i = 0; i * bytes < kBytesInFlight; ++i) {
    Result<PackedMatrix> packed = pack_matrix(weights.view);
    if (!packed.ok()) return state.SkipWithError("pack_matrix failed");
    copies.push_back(std::move(packed).value());
  }
  const std::vector<float> x(static_cast<std::size_t>(num_tokens * cols), 0.5F);
  std::vector<float> y(static_cast<std::size_t>(num_tokens * rows));
  ThreadPool pool(static_cast<int>(state.range(3)));
  std::size_t copy = 0;
  for (auto _ : state) {
    linear(copies[copy], x.data(), num_tokens, y.data(), rows, true, pool, *kernels);
    copy = (copy + 1) % copies.size();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["GFLOP/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * 2 * rows * cols * num_tokens) * 1e-9,
      benchmark::Counter::kIsRate);
}

void register_all() {
  for (const KernelTable* kernels : list_kernel_tables()) {
    const std::string name = "linear_nvfp4/" + std::string(kernels->name);
    benchmark::RegisterBenchmark(name.c_str(), linear_nvfp4, kernels)
        ->ArgNames({"rows", "cols", "tokens", "threads"})
        ->ArgsProduct({{2048}, {2048}, {1, 16}, {1, 2}})
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace halfbyte::cpu

int main(int argc, char** argv) {
  halfbyte::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
