// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace halfbyte {
namespace {

using ::testing::Each;
using ::testing::UnorderedElementsAre;

TEST(UsableCores, AreAtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

TEST(ThreadPool, CountsTheCaller) {
  EXPECT_EQ(ThreadPool(1).num_threads(), 1);
  EXPECT_EQ(ThreadPool(3).num_threads(), 3);
  EXPECT_EQ(ThreadPool().num_threads(), usable_cores());
}

TEST(ThreadPool, RunsEveryIndexOnceWithAThreadIndexInRange) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (const std::int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(num_tasks));
      std::atomic<bool> in_range = true;
      pool.parallel_for(num_tasks, [&](std::int64_t task_idx, int thread_idx) {
        ++runs[static_cast<std::size_t>(task_idx)];
        if (thread_idx < 0 || thread_idx >= num_threads) in_range = false;
      });
      EXPECT_TRUE(in_range);
      for (const std::atomic<int>& count : runs)
        EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ThreadsThatKeepPaceWalkNeighbours) {
  ThreadPool pool(2);
  std::barrier both(2);  // no thread starts its next task before the other has its own
  std::array<std::vector<std::int64_t>, 2> tasks;
  pool.parallel_for(10, [&](std::int64_t task_idx, int thread_idx) {
    tasks[static_cast<std::size_t>(thread_idx)].push_back(task_idx);
    both.arrive_and_wait();
  });
  for (std::size_t round = 0; round < 5; ++round) {
    const auto i = static_cast<std::int64_t>(round);
    EXPECT_THAT((std::array{tasks[0][round], tasks[1][round]}), UnorderedElementsAre(i, 5 + i));
  }
}

TEST(ThreadPool, WritesOfALoopAreVisibleToTheNextOne) {
  // Plain memory on purpose: a missing barrier shows under the thread sanitizer.
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(64, [&](std::int64_t i, int) {
      const auto index = static_cast<std::size_t>(i);
      values[index] += 1;
    });
  }
  EXPECT_THAT(values, Each(2000));
}

TEST(ThreadPool, ScratchOfAThreadIsNeverShared) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(pool.num_threads()), 0);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(100, [&](std::int64_t i, int thread_idx) {
      sums[static_cast<std::size_t>(thread_idx)] += i;
    });
  }
  std::int64_t total = 0;
  for (const std::int64_t sum : sums)
    total += sum;
  EXPECT_EQ(total, 200 * 4950);
}

TEST(ThreadPool, SleepingThreadsWakeUpForTheNextLoop) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than they spin
    std::atomic<int> runs = 0;
    pool.parallel_for(30, [&](std::int64_t, int) { ++runs; });
    EXPECT_EQ(runs.load(), 30);
  }
}

TEST(ThreadPool, ManyPoolsStartAndStop) {
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool(4);
    if (round % 2 == 0) continue;  // some never run a loop
    std::atomic<int> runs = 0;
    pool.parallel_for(8, [&](std::int64_t, int) { ++runs; });
    ASSERT_EQ(runs.load(), 8);
  }
}

TEST(ThreadPool, PoolsOfDifferentOwnersWorkAtTheSameTime) {
  std::atomic<std::int64_t> total = 0;
  const auto owner = [&total] {
    ThreadPool pool(2);
    for (int round = 0; round < 200; ++round)
      pool.parallel_for(10, [&](std::int64_t i, int) { total += i; });
  };
  std::thread other(owner);
  owner();
  other.join();
  EXPECT_EQ(total.load(), 2 * 200 * 45);
}

}  // namespace
}  // namespace halfbyte
