// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_MOE_LAYER_COUNTERS_H_
#define HALFBYTE_MOE_LAYER_COUNTERS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "halfbyte/moe.h"

namespace halfbyte {

/// One counter. One thread adds, any thread reads: so adding is a load and a store without a lock
/// on the bus.
class Count {
 public:
  void add(std::int64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::int64_t read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_ = 0;
};

/// MoeCounters while they count.
struct LayerCounters {
  explicit LayerCounters(std::int64_t num_experts)
      : tokens_per_expert(static_cast<std::size_t>(num_experts)) {}

  MoeCounters read() const {
    MoeCounters counters;
    for (const Count& tokens : tokens_per_expert)
      counters.tokens_per_expert.push_back(tokens.read());
    counters.dropped_routes = dropped_routes.read();
    counters.padded_rows = padded_rows.read();
    counters.unroutable_rows = unroutable_rows.read();
    counters.expert_bytes_read = expert_bytes_read.read();
    counters.num_steps = num_steps.read();
    counters.experts_touched = experts_touched.read();
    counters.dispatch_bytes = dispatch_bytes.read();
    return counters;
  }

  std::vector<Count> tokens_per_expert;  // [num_experts]
  Count dropped_routes, padded_rows, unroutable_rows, expert_bytes_read;
  Count num_steps, experts_touched, dispatch_bytes;
};

}  // namespace halfbyte

#endif  // HALFBYTE_MOE_LAYER_COUNTERS_H_
