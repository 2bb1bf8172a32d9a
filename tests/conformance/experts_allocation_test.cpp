// SPDX-License-Identifier: Apache-2.0
//
// run() allocates nothing: the global allocator counts while it runs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/moe_case.h"

namespace {

std::atomic<bool> g_counting = false;
std::atomic<int> g_allocations = 0;

void* counted(std::size_t bytes) {
  if (g_counting) ++g_allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace halfbyte {
namespace {

// The reference keeps scratch per thread, made by a thread's first run; the cpu backend's first run
// already allocates nothing.
TEST(ExpertsAllocation, ARunAllocatesNothing) {
  const test::TestLayer layer = test::random_layer({.hidden_size = 64, .intermediate_size = 48}, 1);
  const test::TestTokens tokens = test::random_tokens(layer.spec, 9, 2);
  const test::TestRoutes routes(layer.spec, tokens);
  const DispatchedTokens dispatched = routes.dispatched(layer.spec, tokens);
  std::vector<float> rows(routes.route_row.size() * 64);
  int num_runs = 0;
  for (const auto& backend : list_expert_backends()) {
    for (const ActivationMode mode : {ActivationMode::kW4a16, ActivationMode::kW4a4,
                                      ActivationMode::kW4a4Dynamic, ActivationMode::kW4a8}) {
      if (!backend->can_use({}).ok() || !backend->can_run(layer.spec, mode).ok()) continue;
      test::BackendRun run(backend, layer, mode, 9);
      if (backend->name() == "reference") {
        ASSERT_TRUE(run.run(dispatched, rows).ok());
      }
      g_allocations = 0;
      g_counting = true;
      const Status status = run.run(dispatched, rows);
      g_counting = false;
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(g_allocations, 0) << backend->name() << " " << activation_mode_name(mode);
      ++num_runs;
    }
  }
  EXPECT_GE(num_runs, 8);  // cpu and the reference in four modes each
}

}  // namespace
}  // namespace halfbyte
