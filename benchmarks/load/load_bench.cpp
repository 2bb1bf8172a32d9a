// SPDX-License-Identifier: Apache-2.0
//
// Opening and loading synthetic checkpoints against their budgets (docs/spec/checkpoints.md 7):
// CPU seconds to open as many tensors as the largest NVFP4 checkpoints have, and peak anonymous
// memory while a model of a few hundred megabytes is loaded. Exits 1 above either budget.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "anonymous_memory.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "synthetic_checkpoint.h"
#include "weights/checkpoint_weights.h"

namespace halfbyte::benchmarks {
namespace {

constexpr SyntheticSizes kManyTensors = {.layers = 40, .experts = 258, .shards = 4};
constexpr SyntheticSizes kLargeModel = {.layers = 4,
                                        .hidden = 1024,
                                        .intermediate = 512,
                                        .experts = 64,
                                        .head_dim = 512,
                                        .vocab = 32768,
                                        .shards = 2};
constexpr double kOpenBudgetSeconds = 1.0;
constexpr int kOpenRuns = 3;
constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kMemorySlack = 64 * kMebibyte;
constexpr int kMaxLoaderThreads = 4;  // of src/model/loader.cpp

/// A directory that goes away with its object.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("halfbyte-load-bench-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

double mebibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kMebibyte);
}

Result<bool> open_within_budget() {
  const TemporaryDirectory directory;
  const SyntheticCheckpoint written = write_synthetic_checkpoint(directory.path(), kManyTensors);
  double best = kOpenBudgetSeconds * 1000;
  for (int run = 0; run < kOpenRuns; ++run) {
    const std::clock_t begin = std::clock();
    HALFBYTE_ASSIGN_OR_RETURN(const auto weights,
                              CheckpointWeights::open(directory.path().string(), false, nullptr));
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  fmt::print("open {} tensors: {:.3f} CPU seconds (best of {}), budget {:.1f}\n",
             written.num_tensors, best, kOpenRuns, kOpenBudgetSeconds);
  return best <= kOpenBudgetSeconds;
}

ModelOptions small_options() {
  ModelOptions options;
  options.moe.capacity_tokens = 8;
  options.max_context_tokens = 64;
  options.kv_cache_blocks = 8;
  return options;
}

Result<bool> load_within_budget() {
  const TemporaryDirectory directory;
  const SyntheticCheckpoint written = write_synthetic_checkpoint(directory.path(), kLargeModel);
  const int num_loaders = std::min(usable_cores(), kMaxLoaderThreads);
  // The prepared form of NVFP4 and BF16 weights is as large as the file's, up to padding.
  const std::int64_t allowed =
      written.tensor_bytes + 2 * num_loaders * written.expert_bytes + kMemorySlack;
  const std::int64_t before = anonymous_bytes();
  AnonymousPeak watch;
  HALFBYTE_ASSIGN_OR_RETURN(const auto weights,
                            CheckpointWeights::open(directory.path().string(), false, nullptr));
  HALFBYTE_ASSIGN_OR_RETURN(const auto models,
                            load_model(*weights, small_options(), {}, nullptr, nullptr));
  const std::int64_t after = anonymous_bytes() - before;
  const std::int64_t peak = watch.stop() - before;
  fmt::print(
      "load {:.0f} MiB of weights: peak anonymous memory {:.0f} MiB, {:.0f} MiB when loaded; "
      "allowed {:.0f} MiB (weights, 2 experts of {:.1f} MiB for each of {} threads, 64 MiB), "
      "ratio {:.3f}\n",
      mebibytes(written.tensor_bytes), mebibytes(peak), mebibytes(after), mebibytes(allowed),
      mebibytes(written.expert_bytes), num_loaders,
      static_cast<double>(peak) / static_cast<double>(allowed));
  return peak <= allowed;
}

bool report(std::string_view what, const Result<bool>& within_budget) {
  if (!within_budget.ok()) {
    fmt::print(stderr, "error: {}: {}\n", what, within_budget.status().to_string());
    return false;
  }
  if (!*within_budget) fmt::print(stderr, "error: {}: above the budget\n", what);
  return *within_budget;
}

}  // namespace
}  // namespace halfbyte::benchmarks

int main() {
  using namespace halfbyte::benchmarks;
  const bool opened = report("open", open_within_budget());
  const bool loaded = report("load", load_within_budget());
  return opened && loaded ? 0 : 1;
}
