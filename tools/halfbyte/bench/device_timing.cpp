// SPDX-License-Identifier: Apache-2.0
#include "bench/device_timing.h"

#include <algorithm>
#include <vector>

#include "bench/statistics.h"
#include "device/buffer.h"
#include "device/event.h"
#include "device/graph.h"
#include "kernels/cuda/common/read_stream.h"

namespace halfbyte::tool {
namespace {

constexpr int kWarmUpReplays = 3;
constexpr int kReplays = 30;
constexpr double kSustainedUs = 120e3;
constexpr int kReadSteps = 4;

// Milliseconds of each replay that counts.
Result<std::vector<double>> time_replays(const device::Stream& stream, const device::Graph& graph) {
  HALFBYTE_ASSIGN_OR_RETURN(const device::Event begin, device::Event::create());
  HALFBYTE_ASSIGN_OR_RETURN(const device::Event end, device::Event::create());
  std::vector<double> milliseconds;
  for (int i = 0; i < kWarmUpReplays + kReplays; ++i) {
    HALFBYTE_RETURN_IF_ERROR(begin.record(stream));
    HALFBYTE_RETURN_IF_ERROR(graph.launch(stream));
    HALFBYTE_RETURN_IF_ERROR(end.record(stream));
    HALFBYTE_ASSIGN_OR_RETURN(const float ms, begin.milliseconds_until(end));
    if (i >= kWarmUpReplays) milliseconds.push_back(ms);
  }
  return milliseconds;
}

// After three quarters of `num_replays` without a pause.
Result<device::PowerState> power_under_load(const device::Stream& stream,
                                            int device_idx,
                                            const device::Graph& graph,
                                            int num_replays) {
  HALFBYTE_ASSIGN_OR_RETURN(const device::Event late, device::Event::create());
  for (int i = 0; i < num_replays; ++i) {
    if (i == num_replays * 3 / 4) HALFBYTE_RETURN_IF_ERROR(late.record(stream));
    HALFBYTE_RETURN_IF_ERROR(graph.launch(stream));
  }
  HALFBYTE_RETURN_IF_ERROR(late.synchronize());
  const device::PowerState power = device::read_power_state(device_idx);
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return power;
}

}  // namespace

Result<GraphTiming> time_graph(const device::Stream& stream,
                               int device_idx,
                               int num_steps,
                               const std::function<Status(int)>& enqueue) {
  HALFBYTE_ASSIGN_OR_RETURN(const device::Graph graph, device::Graph::capture(stream, [&] {
                              for (int step = 0; step < num_steps; ++step)
                                HALFBYTE_RETURN_IF_ERROR(enqueue(step));
                              return Status();
                            }));
  HALFBYTE_ASSIGN_OR_RETURN(std::vector<double> milliseconds, time_replays(stream, graph));
  const double us_of_step = 1e3 / num_steps;
  GraphTiming timing;
  const auto [fastest, slowest] = std::minmax_element(milliseconds.begin(), milliseconds.end());
  timing.fastest_us = *fastest * us_of_step;
  timing.slowest_us = *slowest * us_of_step;
  const double replay_us = 1e3 * median(std::move(milliseconds));
  timing.median_us = replay_us / num_steps;
  HALFBYTE_ASSIGN_OR_RETURN(
      timing.power,
      power_under_load(stream, device_idx, graph, static_cast<int>(kSustainedUs / replay_us) + 2));
  return timing;
}

Result<double> measure_read_bandwidth(const device::Stream& stream,
                                      int device_idx,
                                      std::int64_t num_bytes) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto data,
                            device::DeviceBuffer::allocate(static_cast<std::size_t>(num_bytes)));
  HALFBYTE_ASSIGN_OR_RETURN(const auto sink, device::DeviceBuffer::allocate(4));
  HALFBYTE_RETURN_IF_ERROR(data.fill(std::byte{0x5A}, stream));
  HALFBYTE_ASSIGN_OR_RETURN(
      const GraphTiming timing, time_graph(stream, device_idx, kReadSteps, [&](int) {
        return cuda::launch_read_stream(data.data(), num_bytes, sink.as<std::uint32_t>(),
                                        stream.handle());
      }));
  return static_cast<double>(num_bytes) / (timing.median_us * 1e-6);
}

}  // namespace halfbyte::tool
