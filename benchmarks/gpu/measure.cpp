// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "device/buffer.h"
#include "device/cuda_status.h"
#include "device/event.h"
#include "device/graph.h"

namespace halfbyte::bench {
namespace {

constexpr int kReplays = 30;
constexpr double kSustainedUs = 120e3;

/// The few NVML calls that this needs, if the driver's library is there.
class PowerMeter {
 public:
  PowerMeter() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    const auto handle = find<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    clock_ = find<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power_ = find<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    if (init == nullptr || handle == nullptr || init() != 0 || handle(0, &device_) != 0)
      device_ = nullptr;
  }
  void read(Timing& timing) const {
    constexpr int kSmClock = 1;
    unsigned value = 0;
    if (device_ == nullptr || clock_ == nullptr || power_ == nullptr) return;
    if (clock_(device_, kSmClock, &value) == 0) timing.sm_mhz = value;
    if (power_(device_, &value) == 0) timing.watts = value / 1000.0;
  }

 private:
  template <typename T>
  T find(const char* name) const {
    return reinterpret_cast<T>(dlsym(library_, name));
  }
  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
};

}  // namespace

Result<Timing> time_graph(const device::Stream& stream,
                          int steps,
                          const std::function<Status(int)>& enqueue) {
  static const PowerMeter meter;
  HALFBYTE_ASSIGN_OR_RETURN(const device::Graph graph, device::Graph::capture(stream, [&] {
                              for (int i = 0; i < steps; ++i)
                                HALFBYTE_RETURN_IF_ERROR(enqueue(i));
                              return Status();
                            }));
  HALFBYTE_ASSIGN_OR_RETURN(const device::Event begin, device::Event::create());
  HALFBYTE_ASSIGN_OR_RETURN(const device::Event end, device::Event::create());
  std::vector<double> times;
  for (int i = 0; i < kReplays + 3; ++i) {
    HALFBYTE_RETURN_IF_ERROR(begin.record(stream));
    HALFBYTE_RETURN_IF_ERROR(graph.launch(stream));
    HALFBYTE_RETURN_IF_ERROR(end.record(stream));
    HALFBYTE_ASSIGN_OR_RETURN(const float ms, begin.milliseconds_until(end));
    if (i >= 3) times.push_back(ms * 1e3 / steps);
  }
  std::sort(times.begin(), times.end());
  Timing timing = {times[times.size() / 2], times.front(), times.back()};
  const int sustained = static_cast<int>(kSustainedUs / (timing.median_us * steps)) + 2;
  for (int i = 0; i < sustained; ++i) {
    if (i == sustained * 3 / 4) {
      HALFBYTE_RETURN_IF_ERROR(begin.record(stream));
    }
    HALFBYTE_RETURN_IF_ERROR(graph.launch(stream));
  }
  HALFBYTE_RETURN_IF_ERROR(
      device::cuda_status(cudaEventSynchronize(begin.handle()), "wait for an event"));
  meter.read(timing);
  HALFBYTE_RETURN_IF_ERROR(stream.synchronize());
  return timing;
}

Result<double> measure_read_bandwidth(const device::Stream& stream, std::int64_t bytes) {
  HALFBYTE_ASSIGN_OR_RETURN(const auto data,
                            device::DeviceBuffer::allocate(static_cast<std::size_t>(bytes)));
  HALFBYTE_ASSIGN_OR_RETURN(const auto sink, device::DeviceBuffer::allocate(4));
  HALFBYTE_RETURN_IF_ERROR(fill_random(data.data(), bytes, 1, 0, 0, stream));
  HALFBYTE_ASSIGN_OR_RETURN(const Timing timing, time_graph(stream, 4, [&](int) {
                              return read_all(data.data(), bytes, sink.as<std::uint32_t>(), stream);
                            }));
  return static_cast<double>(bytes) / (timing.median_us * 1e-6);
}

}  // namespace halfbyte::bench
