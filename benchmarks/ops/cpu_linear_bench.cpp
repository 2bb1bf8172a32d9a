// SPDX-License-Identifier: Apache-2.0
//
// One dense linear on the cpu, for every kernel table of this machine and every way that it can be
// multiplied, beside what the same threads read from memory and multiply in int8 in between.
//
//   bench_ops [ROWS COLS THREADS [TOKENS ...]]     default: 2048 2048, all cores, 1 4 16 128
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cache_size.h"
#include "bench/ceilings.h"
#include "bench/statistics.h"
#include "kernels/cpu/linear.h"

namespace halfbyte::cpu {
namespace {

struct Arguments {
  std::int64_t rows = 2048, cols = 2048;
  int threads = usable_cores();
  std::vector<std::int64_t> tokens = {1, 4, 16, 128};
};

// ------------------------------------------------------------------------------- weights

struct RandomMatrix {
  CanonicalMatrix view;
  std::vector<std::uint8_t> codes, block_scale;
  std::vector<float> scale;
};

std::int64_t code_bytes(WeightFormat format, std::int64_t count) {
  if (format == WeightFormat::kNvfp4) return count / 2;
  return format == WeightFormat::kFp8 ? count : count * 2;
}

// Every NVFP4 and FP8 code; BF16 of both signs between 2^-7 and 2.
RandomMatrix random_matrix(WeightFormat format, std::int64_t rows, std::int64_t cols) {
  std::mt19937 rng(1);
  RandomMatrix matrix;
  matrix.codes.resize(static_cast<std::size_t>(code_bytes(format, rows * cols)));
  for (std::size_t i = 0; i < matrix.codes.size(); ++i) {
    const bool top_of_bf16 = format == WeightFormat::kBf16 && i % 2 != 0;
    const bool fp8 = format == WeightFormat::kFp8;
    const unsigned byte = rng() & 0xFFU;
    matrix.codes[i] = static_cast<std::uint8_t>(top_of_bf16 ? 0x3C + byte % 4 + (byte & 0x80U)
                                                : fp8       ? byte & 0xF7U
                                                            : byte);
  }
  if (format == WeightFormat::kNvfp4)
    matrix.block_scale.resize(static_cast<std::size_t>(rows * cols / 16));
  for (std::uint8_t& byte : matrix.block_scale)
    byte = static_cast<std::uint8_t>(0x20 + rng() % 0x18U);
  if (format == WeightFormat::kFp8) matrix.scale.assign(1, 0.01F);
  matrix.view.format = format;
  matrix.view.rows = rows;
  matrix.view.cols = cols;
  matrix.view.codes = matrix.codes;
  matrix.view.block_scale = matrix.block_scale;
  matrix.view.scale = matrix.scale;
  matrix.view.scale_block_rows = rows;
  matrix.view.scale_block_cols = cols;
  return matrix;
}

// As many copies as exceed three level 3 caches, so that weights come from memory.
std::vector<PackedMatrix> rotating_copies(WeightFormat format, const Arguments& arguments) {
  const RandomMatrix matrix = random_matrix(format, arguments.rows, arguments.cols);
  std::vector<PackedMatrix> copies;
  for (std::size_t bytes = 0;
       bytes < 3 * static_cast<std::size_t>(tool::level3_cache_bytes()) || copies.size() < 2;) {
    Result<PackedMatrix> packed = pack_matrix(matrix.view);
    if (!packed.ok()) return {};
    copies.push_back(std::move(packed).value());
    bytes += copies.back().data.size();
  }
  return copies;
}

// ------------------------------------------------------------------------------- timing

// One linear of `x.size() / cols` tokens, the making of integers included.
using Step = std::function<void(const PackedMatrix& weight, std::int64_t num_tokens)>;

class LinearBench {
 public:
  LinearBench(const Arguments& arguments, tool::CeilingProbe& probe)
      : arguments_(arguments), probe_(probe), pool_(arguments.threads) {
    const std::int64_t most = *std::max_element(arguments.tokens.begin(), arguments.tokens.end());
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    x_.resize(static_cast<std::size_t>(most * arguments.cols));
    for (float& value : x_)
      value = normal(rng);
    y_.resize(static_cast<std::size_t>(most * arguments.rows));
    const auto records = static_cast<std::size_t>(most * num_records(arguments.cols));
    split15_.resize(records);
    int8_.resize(records);
  }

  void time_table(const KernelTable& kernels) {
    const std::string name(kernels.name);
    const auto nvfp4 = rotating_copies(WeightFormat::kNvfp4, arguments_);
    time(name + " nvfp4 w4a16", nvfp4, [&](const PackedMatrix& weight, std::int64_t tokens) {
      quantize(tokens, split15_, kernels.quantize_split15);
      linear(weight, split15_.data(), tokens, output(), pool_, kernels);
    });
    time(name + " nvfp4 w4a4", nvfp4, [&](const PackedMatrix& weight, std::int64_t tokens) {
      quantize(tokens, int8_, [&](const float* x, std::int64_t cols, Int8Record* row) {
        kernels.quantize_nvfp4(x, cols, 0x1p-9F, row);
      });
      linear(weight, int8_.data(), tokens, output(), pool_, kernels);
    });
    const Step exact = [&](const PackedMatrix& weight, std::int64_t tokens) {
      linear(weight, x_.data(), tokens, output(), pool_, kernels);
    };
    time(name + " nvfp4 float32", nvfp4, exact);
    time(name + " bf16", rotating_copies(WeightFormat::kBf16, arguments_), exact);
    time(name + " fp8", rotating_copies(WeightFormat::kFp8, arguments_), exact);
  }

 private:
  LinearOutput output() { return {y_.data(), arguments_.rows}; }

  template <typename Record, typename Quantize>
  void quantize(std::int64_t num_tokens, std::vector<Record>& records, const Quantize& quantize) {
    const std::int64_t per_row = num_records(arguments_.cols);
    for (std::int64_t t = 0; t < num_tokens; ++t)
      quantize(x_.data() + t * arguments_.cols, arguments_.cols, records.data() + t * per_row);
  }

  // Six slices of steps with the machine's own speed measured before, between and after them.
  void time(const std::string& name, const std::vector<PackedMatrix>& copies, const Step& step) {
    for (const std::int64_t num_tokens : arguments_.tokens) {
      std::vector<double> times;
      probe_.measure();
      for (int slice = 0; slice < 6; ++slice) {
        time_slice(copies, step, num_tokens, times);
        probe_.measure();
      }
      print(name, num_tokens, static_cast<double>(copies.front().data.size()),
            tool::median(std::move(times)));
    }
  }

  void time_slice(const std::vector<PackedMatrix>& copies,
                  const Step& step,
                  std::int64_t num_tokens,
                  std::vector<double>& times) {
    using Clock = std::chrono::steady_clock;
    constexpr double kSeconds = 0.1;
    step(copies[next_++ % copies.size()], num_tokens);  // the threads are awake after it
    for (double total = 0; total < kSeconds; total += times.back()) {
      const Clock::time_point start = Clock::now();
      step(copies[next_++ % copies.size()], num_tokens);
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }

  void print(const std::string& name, std::int64_t num_tokens, double bytes, double seconds) {
    const tool::Ceilings ceilings = probe_.ceilings();
    const double gbps = bytes / seconds * 1e-9;
    const double gops =
        2.0 * static_cast<double>(arguments_.rows * arguments_.cols * num_tokens) / seconds * 1e-9;
    fmt::print(
        "{:20} {:4} tokens {:9.4f} ms {:6.1f} GB/s, {:3.0f} % of {:.1f}; {:6.1f} GOP/s, {:3.0f} % "
        "of {:.0f} in int8\n",
        name, num_tokens, seconds * 1e3, gbps, 100 * gbps / ceilings.read_gbps, ceilings.read_gbps,
        gops, 100 * gops / ceilings.multiply_gops, ceilings.multiply_gops);
    std::fflush(stdout);
  }

  const Arguments& arguments_;
  tool::CeilingProbe& probe_;
  ThreadPool pool_;
  std::vector<float> x_, y_;
  std::vector<Split15Record> split15_;
  std::vector<Int8Record> int8_;
  std::size_t next_ = 0;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  if (argc > 2) {
    arguments.rows = std::atoll(argv[1]);
    arguments.cols = std::atoll(argv[2]);
  }
  if (argc > 3) arguments.threads = std::atoi(argv[3]);
  if (argc > 4) arguments.tokens.clear();
  for (int i = 4; i < argc; ++i)
    arguments.tokens.push_back(std::atoll(argv[i]));
  return arguments;
}

int run(const Arguments& arguments) {
  auto probe = tool::CeilingProbe::create(3 * tool::level3_cache_bytes(), arguments.threads);
  if (!probe.ok()) {
    fmt::print("{}\n", probe.status().message());
    return 1;
  }
  fmt::print("{} x {}, {} threads; best kernels: {}\n", arguments.rows, arguments.cols,
             arguments.threads, isa_description());
  LinearBench bench(arguments, **probe);
  for (const KernelTable* table : list_kernel_tables()) {
    if (missing_feature(*table).empty() && table != &kPortableKernels) bench.time_table(*table);
  }
  return 0;
}

}  // namespace
}  // namespace halfbyte::cpu

int main(int argc, char** argv) {
  return halfbyte::cpu::run(halfbyte::cpu::parse(argc, argv));
}
