// SPDX-License-Identifier: Apache-2.0
//
// How GPU work is timed here: a graph of many steps over rotating inputs, medians of its replays,
// and the card's clock and power while it runs.
#ifndef HALFBYTE_BENCHMARKS_GPU_MEASURE_H_
#define HALFBYTE_BENCHMARKS_GPU_MEASURE_H_

#include <cstdint>
#include <functional>

#include "device/stream.h"
#include "halfbyte/result.h"

namespace halfbyte::bench {

struct Timing {
  double median_us = 0;  // of one step
  double fastest_us = 0;
  double slowest_us = 0;
  double sm_mhz = 0;  // under sustained replay; 0 when NVML is absent
  double watts = 0;
};

/// Captures `steps` calls of enqueue(step) and times replays of the graph.
Result<Timing> time_graph(const device::Stream& stream,
                          int steps,
                          const std::function<Status(int)>& enqueue);

/// Bytes per second of a plain read of `bytes` bytes (several times the L2).
Result<double> measure_read_bandwidth(const device::Stream& stream, std::int64_t bytes);

/// Reads every byte once.
Status read_all(const void* src,
                std::int64_t bytes,
                std::uint32_t* sink,
                const device::Stream& stream);

/// Fills device memory with random words; with `low` < `high`, with random bytes in [low, high).
Status fill_random(void* dst,
                   std::int64_t bytes,
                   std::uint32_t seed,
                   int low,
                   int high,
                   const device::Stream& stream);

}  // namespace halfbyte::bench

#endif  // HALFBYTE_BENCHMARKS_GPU_MEASURE_H_
