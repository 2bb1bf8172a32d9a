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

// The task number of a loop that takes no claims; no loop has this many tasks.
constexpr std::uint64_t kClosed = 0xFFFFFFFF;
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

// A loop's tasks are claimed through one word, generation << 32 | next task, so that a worker that
// wakes after its loop has ended claims nothing of the next one by mistake. The caller waits for
// tasks, not for workers: a worker that the system does not run holds nobody up.
struct ThreadPool::Impl {
  std::vector<std::thread> workers;
  std::atomic<std::uint32_t> generation = 0;  // a new value starts a loop
  std::atomic<std::uint64_t> ticket = 0;
  std::atomic<std::int64_t> num_tasks = 0;
  std::atomic<std::int64_t> num_done = 0;
  // Written between loops; read by the owner of a claimed task only.
  TaskFunction function = nullptr;
  void* context = nullptr;
  std::atomic<bool> stop = false;

  // The next task of loop `wanted`, or -1 when it has none left.
  std::int64_t claim(std::uint32_t wanted) {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(seen >> 32) == wanted) {
      const auto task_idx = static_cast<std::int64_t>(seen & 0xFFFFFFFFU);
      if (task_idx >= num_tasks.load(std::memory_order_acquire)) return -1;
      if (ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) return task_idx;
    }
    return -1;
  }

  // The task of a claim. Threads that keep pace walk a stretch of neighbours each, so that what a
  // task prefetches past its end is what its thread reads next.
  std::int64_t task_of(std::int64_t claim_idx) const {
    const std::int64_t num_threads = std::ssize(workers) + 1;
    const std::int64_t stretch = num_tasks.load(std::memory_order_relaxed) / num_threads;
    if (claim_idx >= stretch * num_threads) return claim_idx;
    return claim_idx % num_threads * stretch + claim_idx / num_threads;
  }

  void drain(std::uint32_t loop, int thread_idx) {
    for (std::int64_t i = claim(loop); i >= 0; i = claim(loop)) {
      function(context, task_of(i), thread_idx);
      // Read first: once the last task is counted, the caller may start another loop.
      const std::int64_t total = num_tasks.load(std::memory_order_relaxed);
      if (num_done.fetch_add(1, std::memory_order_acq_rel) + 1 == total) num_done.notify_one();
    }
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
      if (stop.load(std::memory_order_acquire)) return;
      drain(seen, thread_idx);
    }
  }

  // Closes the last loop before any of its fields change: a late worker's claim then fails.
  void start_loop(std::int64_t tasks, TaskFunction task_function, void* task_context) {
    const std::uint32_t loop = generation.load(std::memory_order_relaxed) + 1;
    const std::uint64_t first = static_cast<std::uint64_t>(loop) << 32;
    ticket.store(first | kClosed, std::memory_order_release);
    num_tasks.store(tasks, std::memory_order_release);
    num_done.store(0, std::memory_order_relaxed);
    function = task_function;
    context = task_context;
    ticket.store(first, std::memory_order_release);
    generation.store(loop, std::memory_order_release);
    generation.notify_all();
  }

  void wait_for_tasks(std::int64_t total) {
    for (int spin = 0; spin < kSpins && num_done.load(std::memory_order_acquire) != total; ++spin)
      relax();
    for (std::int64_t done = num_done.load(std::memory_order_acquire); done != total;
         done = num_done.load(std::memory_order_acquire)) {
      num_done.wait(done, std::memory_order_acquire);
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
  impl_->stop.store(true, std::memory_order_release);
  impl_->start_loop(0, nullptr, nullptr);
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
  impl_->start_loop(num_tasks, function, context);
  impl_->drain(impl_->generation.load(std::memory_order_relaxed), 0);
  impl_->wait_for_tasks(num_tasks);
}

}  // namespace halfbyte
