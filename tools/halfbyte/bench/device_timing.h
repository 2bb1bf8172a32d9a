// SPDX-License-Identifier: Apache-2.0
//
// How GPU work is timed: a graph of many steps over rotating inputs, its replays, and the device's
// clock and power while it runs.
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_TIMING_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_TIMING_H_

#include <cstdint>
#include <functional>

#include "device/nvml.h"
#include "device/stream.h"
#include "halfbyte/result.h"

namespace halfbyte::tool {

struct GraphTiming {
  double median_us = 0;  // of one step, over the replays
  double fastest_us = 0;
  double slowest_us = 0;
  device::PowerState power;  // under sustained replay
};

/// Captures `num_steps` calls of enqueue(step) into a graph on the current device, whose index is
/// `device_idx`, and times replays of it.
Result<GraphTiming> time_graph(const device::Stream& stream,
                               int device_idx,
                               int num_steps,
                               const std::function<Status(int)>& enqueue);

/// Bytes per second of a plain read of `num_bytes`, several times the level 2 cache.
Result<double> measure_read_bandwidth(const device::Stream& stream,
                                      int device_idx,
                                      std::int64_t num_bytes);

/// Operations per second of cuBLAS's bf16 product of 8192 x 8192 matrices. cuBLAS is loaded when it
/// is there; kUnsupported: it is not.
Result<double> measure_bf16_product(const device::Stream& stream, int device_idx);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_DEVICE_TIMING_H_
