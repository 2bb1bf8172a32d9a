// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace halfbyte {
namespace {

// About 20 us of polling: shorter than a sleep and wake-up, longer than the gap between two phases.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0)
    return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&set);
}

// cgroup v2 cpu.max: "quota period" in microseconds, or "max period".
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period));
}

}  // namespace

int usable_cores() {
  return std::max(1, std::min(affinity_cores(), quota_cores()));
}

struct ThreadPool::Impl {
  std::vector<std::thread> workers;
  std::atomic<std::uint32_t> generation = 0;  // a new value starts a loop
  std::atomic<int> working = 0;               // workers still inside the current loop
  std::atomic<std::int64_t> next = 0;
  std::int64_t num_tasks = 0;
  TaskFunction function = nullptr;
  void* context = nullptr;
  bool stop = false;

  void drain(int thread_idx) {
    for (std::int64_t i = next.fetch_add(1); i < num_tasks; i = next.fetch_add(1))
      function(context, i, thread_idx);
  }

  std::uint32_t wait_for_change(std::uint32_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen) break;
      relax();
    }
    generation.wait(seen, std::memory_order_acquire);
    return generation.load(std::memory_order_acquire);
  }

  void work(int thread_idx) {
    std::uint32_t seen = 0;
    while (true) {
      seen = wait_for_change(seen);
      if (stop) return;
      drain(thread_idx);
      if (working.fetch_sub(1, std::memory_order_acq_rel) == 1) working.notify_one();
    }
  }

  void start_loop() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void wait_for_workers() {
    for (int spin = 0; spin < kSpins && working.load(std::memory_order_acquire) != 0; ++spin) {
      relax();
    }
    for (int left = working.load(std::memory_order_acquire); left != 0;
         left = working.load(std::memory_order_acquire)) {
      working.wait(left, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  const int wanted = num_threads > 0 ? num_threads : usable_cores();
  try {
    for (int i = 1; i < wanted; ++i)
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->work(i); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that run do the work.
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop = true;
  impl_->start_loop();
  for (std::thread& worker : impl_->workers)
    worker.join();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(std::int64_t num_tasks, TaskFunction function, void* context) {
  if (impl_->workers.empty() || num_tasks <= 1) {
    for (std::int64_t i = 0; i < num_tasks; ++i)
      function(context, i, 0);
    return;
  }
  impl_->function = function;
  impl_->context = context;
  impl_->num_tasks = num_tasks;
  impl_->next.store(0, std::memory_order_relaxed);
  impl_->working.store(static_cast<int>(impl_->workers.size()), std::memory_order_relaxed);
  impl_->start_loop();
  impl_->drain(0);
  impl_->wait_for_workers();
}

}  // namespace halfbyte
