// SPDX-License-Identifier: Apache-2.0
//
// How kernels are timed here: as `halfbyte bench layer` times a layer (bench/device_timing.h), on
// device 0 and on weights that are made there.
#ifndef HALFBYTE_BENCHMARKS_GPU_MEASURE_H_
#define HALFBYTE_BENCHMARKS_GPU_MEASURE_H_

#include <cstdint>
#include <functional>

#include "bench/device_timing.h"
#include "device/stream.h"
#include "halfbyte/result.h"

namespace halfbyte::bench {

using Timing = tool::GraphTiming;

inline Result<Timing> time_graph(const device::Stream& stream,
                                 int steps,
                                 const std::function<Status(int)>& enqueue) {
  return tool::time_graph(stream, 0, steps, enqueue);
}

/// Fills device memory with random words; with `low` < `high`, with random bytes in [low, high).
Status fill_random(void* dst,
                   std::int64_t bytes,
                   std::uint32_t seed,
                   int low,
                   int high,
                   const device::Stream& stream);

}  // namespace halfbyte::bench

#endif  // HALFBYTE_BENCHMARKS_GPU_MEASURE_H_
