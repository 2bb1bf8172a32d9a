// SPDX-License-Identifier: Apache-2.0
#include "device/nvml.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace halfbyte::device {
namespace {

constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kTextBytes = 96;  // of a version and of a bus id

/// The few calls that are used, by the names that the library keeps stable.
class Nvml {
 public:
  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    driver_version = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    device = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    clock = find<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power = find<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    usable = init != nullptr && driver_version != nullptr && device != nullptr &&
             clock != nullptr && power != nullptr && init() == kSuccess;
  }

  bool usable = false;  // then all of these are there
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*device)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;

 private:
  template <typename T>
  T find(const char* name) const {
    return reinterpret_cast<T>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

const Nvml& nvml() {
  static const Nvml library;
  return library;
}

}  // namespace

std::string driver_version() {
  std::array<char, kTextBytes> text = {};
  if (nvml().usable && nvml().driver_version(text.data(), kTextBytes) == kSuccess)
    return text.data();
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return {};
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

PowerState read_power_state(int device_idx) {
  PowerState state;
  std::array<char, kTextBytes> bus_id = {};
  void* device = nullptr;
  if (!nvml().usable ||
      cudaDeviceGetPCIBusId(bus_id.data(), kTextBytes, device_idx) != cudaSuccess ||
      nvml().device(bus_id.data(), &device) != kSuccess)
    return state;
  unsigned value = 0;
  if (nvml().clock(device, kSmClock, &value) == kSuccess) state.sm_mhz = value;
  if (nvml().power(device, &value) == kSuccess) state.watts = value / 1000.0;
  return state;
}

}  // namespace halfbyte::device
