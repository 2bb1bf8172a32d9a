// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_THREAD_POOL_H_
#define HALFBYTE_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace halfbyte {

/// How many threads this process may use: its affinity mask and its cgroup's cpu quota, at least 1.
int usable_cores();

/// A fixed set of threads that run one parallel loop at a time. Idle threads spin briefly, then
/// sleep. Thread rule: parallel_for is called by one thread at a time; the caller works too.
class ThreadPool {
 public:
  /// `num_threads` counts the caller; 0 means usable_cores(). Where the system refuses a thread,
  /// the pool has fewer.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  /// Runs task(index, thread_idx) for every index in [0, num_tasks), in any order, and returns when
  /// all are done; thread_idx in [0, num_threads) names the scratch a task may use. Allocates
  /// nothing.
  template <typename Task>
  void parallel_for(std::int64_t num_tasks, Task&& task) {
    run(
        num_tasks,
        [](void* context, std::int64_t task_idx, int thread_idx) {
          (*static_cast<std::remove_reference_t<Task>*>(context))(task_idx, thread_idx);
        },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using TaskFunction = void (*)(void* context, std::int64_t task_idx, int thread_idx);
  void run(std::int64_t num_tasks, TaskFunction function, void* context);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_THREAD_POOL_H_
