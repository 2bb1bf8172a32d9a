// SPDX-License-Identifier: Apache-2.0
//
// A layer's experts on the cpu backend, for every kernel table of this machine, beside what the
// machine can do: how fast its threads read memory, and how fast the kernels run on a panel that
// lies in cache.
//
//   bench_experts [H I E top_k THREADS [TOKENS ...]]     default: 2048 768 128 8, all cores
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/linear.h"
#include "moe/backends/cpu.h"

namespace halfbyte {
namespace {

struct Shape {
  std::int64_t hidden = 2048, width = 768, experts = 128, top_k = 8;
  int threads = 0;
  std::vector<std::int64_t> tokens = {1, 4, 16, 128, 512};
  std::int64_t expert_bytes() const { return 3 * hidden * width * 9 / 16; }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Median seconds of a call, of at least 5 calls and 0.4 s.
template <typename Call>
double median_seconds(const Call& call) {
  call();
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || (total < 0.4 && times.size() < 400);) {
    const double start = now();
    call();
    times.push_back(now() - start);
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

// ------------------------------------------------------------------------------- the machine

std::uint64_t read_all(const std::uint64_t* words, std::int64_t count, std::int64_t prefetch) {
  std::uint64_t sums[16] = {};
  for (std::int64_t i = 0; i < count; i += 16) {
    if (prefetch != 0) {
      __builtin_prefetch(words + i + prefetch);
      __builtin_prefetch(words + i + prefetch + 8);
    }
    for (std::int64_t j = 0; j < 16; ++j)
      sums[j] ^= words[i + j];
  }
  return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
}

// What the threads read from 512 MiB in huge pages, the best way to prefetch; asked anew beside
// everything that is compared with it.
class Memory {
 public:
  explicit Memory(int num_threads) : pool_(num_threads) {
    Result<HostBuffer> buffer = HostBuffer::allocate(kWords * 8);
    if (!buffer.ok()) return;
    buffer_ = std::move(buffer).value();
    std::memset(buffer_.data(), 1, buffer_.size());
  }

  int num_threads() const { return pool_.num_threads(); }

  double gigabytes_per_second() {
    if (buffer_.size() == 0) return 0;
    constexpr std::int64_t kTask = kWords / 256;
    const auto* words = buffer_.as<const std::uint64_t>();
    double best = 0;
    for (const std::int64_t prefetch : {0, 288, 576}) {
      std::vector<double> times(5);
      for (double& time : times) {
        const double start = now();
        pool_.parallel_for(256, [&](std::int64_t task, int) {
          sink_.fetch_xor(read_all(words + task * kTask, kTask, prefetch),
                          std::memory_order_relaxed);
        });
        time = now() - start;
      }
      std::nth_element(times.begin(), times.begin() + 2, times.end());
      best = std::max(best, static_cast<double>(kWords * 8) / times[2] * 1e-9);
    }
    return best;
  }

 private:
  static constexpr std::int64_t kWords = std::int64_t{64} << 20;
  ThreadPool pool_;
  HostBuffer buffer_;
  std::atomic<std::uint64_t> sink_ = 0;  // so that nothing read is left out
};

// ------------------------------------------------------------------------------- a layer

struct Matrix {
  std::vector<std::uint8_t> codes, block_scale;
  CanonicalMatrix view;

  Matrix(std::int64_t rows, std::int64_t cols, unsigned seed) {
    std::mt19937 rng(seed);
    codes.resize(static_cast<std::size_t>(rows * cols / 2));
    block_scale.resize(static_cast<std::size_t>(rows * cols / 16));
    for (std::uint8_t& byte : codes)
      byte = static_cast<std::uint8_t>(rng() & 0xFFU);
    for (std::uint8_t& byte : block_scale)
      byte = static_cast<std::uint8_t>(0x20 + rng() % 0x18U);
    view.rows = rows;
    view.cols = cols;
    view.codes = codes;
    view.block_scale = block_scale;
    view.global_scale = 0.01F;
  }
};

// Weights are prepared once: every kernel table and mode reads the same panels.
class Layer {
 public:
  explicit Layer(const Shape& shape) : shape_(shape) { status_ = make(); }

  const Status& status() const { return status_; }

  Status use(const cpu::KernelTable& kernels, ActivationMode mode, bool exact_float32) {
    backend_ = make_cpu_backend_with(kernels);
    HALFBYTE_ASSIGN_OR_RETURN(plan_, backend_->plan(request(mode, exact_float32)));
    HALFBYTE_ASSIGN_OR_RETURN(workspace_, HostBuffer::allocate(plan_.workspace.total_bytes()));
    return {};
  }

  void choose_routes(std::int64_t num_tokens, std::mt19937& rng) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape_.experts));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<std::vector<std::int32_t>> rows(ids.size());
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      std::shuffle(ids.begin(), ids.end(), rng);
      for (std::size_t slot = 0; slot < static_cast<std::size_t>(shape_.top_k); ++slot)
        rows[static_cast<std::size_t>(ids[slot])].push_back(static_cast<std::int32_t>(token));
    }
    route_row_.clear();
    offset_ = {0};
    count_.clear();
    num_active_ = 0;
    for (const auto& of_expert : rows) {
      route_row_.insert(route_row_.end(), of_expert.begin(), of_expert.end());
      count_.push_back(static_cast<std::int32_t>(of_expert.size()));
      offset_.push_back(std::ssize(route_row_));
      num_active_ += of_expert.empty() ? 0 : 1;
    }
  }

  std::int64_t num_active() const { return num_active_; }

  void run(std::int64_t num_tokens) {
    DispatchedTokens tokens;
    tokens.x = {x_.data(), DType::kBf16, num_tokens, shape_.hidden};
    tokens.num_rows = num_tokens;
    tokens.route_row = route_row_.data();
    tokens.expert_offset = offset_.data();
    tokens.expert_count = count_.data();
    tokens.num_routes = std::ssize(route_row_);
    y_.resize(route_row_.size() * static_cast<std::size_t>(shape_.hidden));
    ExpertOutput output;
    output.rows = {y_.data(), DType::kF32, std::ssize(route_row_), shape_.hidden};
    status_ = backend_->run(plan_, *prepared_, tokens, output,
                            {workspace_.data(), workspace_.size()}, nullptr);
  }

 private:
  ExpertPlan request(ActivationMode mode, bool exact_float32) const {
    ExpertPlan request;
    request.spec.hidden_size = shape_.hidden;
    request.spec.intermediate_size = shape_.width;
    request.spec.num_experts = shape_.experts;
    request.spec.top_k = shape_.top_k;
    request.mode = mode;
    request.exact_float32 = exact_float32;
    request.shard = {.num_local_experts = shape_.experts, .intermediate_size = shape_.width};
    request.limits.num_threads = shape_.threads;
    request.capacity_tokens = *std::max_element(shape_.tokens.begin(), shape_.tokens.end());
    return request;
  }

  Status make() {
    HALFBYTE_RETURN_IF_ERROR(use(cpu::best_kernel_table(), ActivationMode::kW4a16, false));
    HALFBYTE_ASSIGN_OR_RETURN(prepared_, backend_->allocate(plan_));
    HALFBYTE_RETURN_IF_ERROR(prepare_experts());
    const std::vector<float> ones(static_cast<std::size_t>(shape_.experts), 0.01F);
    ExpertScales scales;
    for (auto* values :
         {&scales.gate_global_scale, &scales.up_global_scale, &scales.down_global_scale,
          &scales.gate_alpha, &scales.up_alpha, &scales.down_alpha})
      *values = ones;
    scales.s1 = 0x1p-9F;
    scales.s2 = 0x1p-9F;
    std::mt19937 rng(4);
    for (std::int64_t i = 0; i < plan_.capacity_tokens * shape_.hidden; ++i)
      x_.push_back(static_cast<std::uint16_t>(0x3F00U + (rng() & 0x80FFU)));
    return backend_->set_scales(plan_, scales, *prepared_, nullptr);
  }

  Status prepare_experts() {
    const Matrix gate(shape_.width, shape_.hidden, 1);
    const Matrix up(shape_.width, shape_.hidden, 2);
    const Matrix down(shape_.hidden, shape_.width, 3);
    std::vector<Status> results(static_cast<std::size_t>(shape_.experts));
    ThreadPool pool;
    pool.parallel_for(shape_.experts, [&](std::int64_t e, int) {
      results[static_cast<std::size_t>(e)] =
          backend_->prepare(plan_, e, {gate.view, up.view, down.view}, *prepared_, nullptr);
    });
    for (Status& status : results)
      HALFBYTE_RETURN_IF_ERROR(std::move(status));
    return {};
  }

  Shape shape_;
  std::shared_ptr<ExpertBackend> backend_;
  ExpertPlan plan_;
  std::unique_ptr<PreparedExpertWeights> prepared_;
  HostBuffer workspace_;
  std::vector<std::uint16_t> x_;
  std::vector<float> y_;
  std::vector<std::int32_t> route_row_, count_;
  std::vector<std::int64_t> offset_;
  std::int64_t num_active_ = 0;
  Status status_;
};

// Median and best seconds of a step, with other experts in every step.
struct StepTime {
  double median = 0, best = 0, active_experts = 0;
};

StepTime time_step(Layer& layer, std::int64_t num_tokens) {
  std::mt19937 rng(5);
  StepTime result;
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || (total < 0.5 && times.size() < 300);) {
    layer.choose_routes(num_tokens, rng);
    result.active_experts += static_cast<double>(layer.num_active());
    const double start = now();
    layer.run(num_tokens);
    times.push_back(now() - start);
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  result.median = times[times.size() / 2];
  result.best = times[0];
  result.active_experts /= static_cast<double>(times.size());
  return result;
}

void time_mode(Layer& layer, const Shape& shape, const std::string& name, Memory& memory) {
  const double bandwidth = memory.gigabytes_per_second();
  for (const std::int64_t num_tokens : shape.tokens) {
    const StepTime time = time_step(layer, num_tokens);
    const double gigabytes =
        time.active_experts * static_cast<double>(shape.expert_bytes()) * 1e-9 / time.median;
    const double operations =
        6.0 * static_cast<double>(shape.hidden * shape.width * shape.top_k * num_tokens);
    fmt::print(
        "{:24} {:5} tokens {:9.3f} ms (best {:9.3f}) {:6.1f} GB/s, {:4.0f} % of {:.1f}, "
        "{:7.1f} GOP/s\n",
        name, num_tokens, time.median * 1e3, time.best * 1e3, gigabytes,
        100 * gigabytes / bandwidth, bandwidth, operations / time.median * 1e-9);
    std::fflush(stdout);
  }
}

// ------------------------------------------------------------------------------- kernels in cache

template <typename Record, typename Quantize, typename Dot>
double kernel_rate(const Shape& shape, Quantize quantize, Dot dot, int num_x) {
  const Matrix weights(16, shape.hidden, 6);
  const Result<cpu::PackedMatrix> packed = cpu::pack_matrix(weights.view);
  if (!packed.ok()) return 0;
  const std::int64_t records = cpu::num_records(shape.hidden);
  std::vector<Record> rows(static_cast<std::size_t>(num_x * records));
  std::vector<float> x(static_cast<std::size_t>(shape.hidden));
  std::vector<const Record*> pointers;
  for (int t = 0; t < num_x; ++t) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 7 + static_cast<std::size_t>(t)) % 100 - 50);
    quantize(x.data(), shape.hidden, rows.data() + t * records);
    pointers.push_back(rows.data() + t * records);
  }
  std::vector<float> sums(static_cast<std::size_t>(num_x * 16));
  const double seconds = median_seconds([&] {
    for (int i = 0; i < 50; ++i)
      dot(packed->data.template as<const std::uint8_t>(), records, pointers.data(), num_x,
          sums.data());
  });
  return 50.0 * 2 * 16 * static_cast<double>(shape.hidden * num_x) / seconds * 1e-9;
}

void time_kernels(const Shape& shape, const cpu::KernelTable& kernels) {
  for (const int num_x : {1, 4, 8, 32}) {
    const double split = kernel_rate<cpu::Split15Record>(shape, kernels.quantize_split15,
                                                         kernels.split15_dot, num_x);
    const double bytes =
        kernel_rate<cpu::Int8Record>(shape, kernels.quantize_int8, kernels.int8_dot, num_x);
    fmt::print(
        "{:9} in cache, 1 thread, {:2} rows: split15 {:6.1f}, int8 {:6.1f} GOP/s; weights {:5.1f}, "
        "{:5.1f} GB/s\n",
        kernels.name, num_x, split, bytes, split / num_x * 9 / 32, bytes / num_x * 9 / 32);
  }
}

struct Mode {
  const char* name;
  ActivationMode mode;
  bool exact_float32;
};

constexpr Mode kModes[] = {{"w4a16", ActivationMode::kW4a16, false},
                           {"w4a8", ActivationMode::kW4a8, false},
                           {"w4a4", ActivationMode::kW4a4, false},
                           {"w4a4_dynamic", ActivationMode::kW4a4Dynamic, false},
                           {"w4a16 float32", ActivationMode::kW4a16, true}};

void time_table(Layer& layer, const Shape& shape, const cpu::KernelTable& kernels, Memory& memory) {
  time_kernels(shape, kernels);
  for (const Mode& mode : kModes) {
    const Status status = layer.use(kernels, mode.mode, mode.exact_float32);
    if (!status.ok()) return fmt::print("{}\n", status.message());
    time_mode(layer, shape, fmt::format("{} {}", kernels.name, mode.name), memory);
  }
}

Shape parse(int argc, char** argv) {
  Shape shape;
  const auto number = [&](int i, std::int64_t or_else) {
    return i < argc ? static_cast<std::int64_t>(std::atoll(argv[i])) : or_else;
  };
  shape.hidden = number(1, shape.hidden);
  shape.width = number(2, shape.width);
  shape.experts = number(3, shape.experts);
  shape.top_k = number(4, shape.top_k);
  shape.threads = static_cast<int>(number(5, usable_cores()));
  if (argc > 6) shape.tokens.clear();
  for (int i = 6; i < argc; ++i)
    shape.tokens.push_back(number(i, 1));
  return shape;
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  const halfbyte::Shape shape = halfbyte::parse(argc, argv);
  halfbyte::Memory memory(shape.threads);
  fmt::print("H {} I {} experts {} top {}: {} threads read {:.1f} GB/s; best kernels: {}\n",
             shape.hidden, shape.width, shape.experts, shape.top_k, memory.num_threads(),
             memory.gigabytes_per_second(), halfbyte::cpu::isa_description());
  halfbyte::Layer layer(shape);
  if (!layer.status().ok()) {
    fmt::print("{}\n", layer.status().message());
    return 1;
  }
  for (const halfbyte::cpu::KernelTable* table : halfbyte::cpu::list_kernel_tables()) {
    if (halfbyte::cpu::missing_feature(*table).empty() && table != &halfbyte::cpu::kPortableKernels)
      halfbyte::time_table(layer, shape, *table, memory);
  }
  return 0;
}
