// SPDX-License-Identifier: Apache-2.0
#include "moe/device_limits.h"

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "device/properties.h"

namespace halfbyte {

Result<DeviceLimits> read_device_limits(const Device& device, int num_threads) {
  DeviceLimits limits;
  limits.device = device;
  limits.num_threads = num_threads > 0 ? num_threads : usable_cores();
  if (device.kind == DeviceKind::kHost) return limits;
  HALFBYTE_ASSIGN_OR_RETURN(const device::Properties properties,
                            device::read_properties(device.index));
  limits.compute_capability = properties.compute_capability;
  limits.num_multiprocessors = properties.num_multiprocessors;
  limits.shared_memory_bytes = properties.shared_memory_bytes;
  return limits;
}

std::string device_name(const Device& device) {
  if (device.kind == DeviceKind::kHost) return "the host";
  return fmt::format("CUDA device {}", device.index);
}

Status ExpertBackend::can_use(const DeviceLimits& limits) const {
  if (limits.device.kind == device_kind()) return {};
  return {StatusCode::kUnsupported, fmt::format("{} runs on the host, the layer lives on {}",
                                                name(), device_name(limits.device))};
}

Result<std::unique_ptr<TacticTimer>> ExpertBackend::make_tactic_timer(
    const ExpertPlan& /*plan*/,
    const PreparedExpertWeights& /*prepared*/,
    device::Stream* /*stream*/) {
  return Status(StatusCode::kUnsupported, fmt::format("{} has no tactics to measure", name()));
}

}  // namespace halfbyte
