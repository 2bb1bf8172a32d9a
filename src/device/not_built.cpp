// SPDX-License-Identifier: Apache-2.0
//
// This folder in a build without CUDA: there is no device, nothing can be made, and so nothing else
// here is ever reached.
#include "device/buffer.h"
#include "device/current_device.h"
#include "device/event.h"
#include "device/graph.h"
#include "device/nvml.h"
#include "device/properties.h"
#include "device/stream.h"

namespace halfbyte::device {
namespace {

Status not_built() {
  return {StatusCode::kUnsupported, "not built (CUDA is off: configure with -DHALFBYTE_CUDA=ON)"};
}

}  // namespace

int num_devices() {
  return 0;
}
Result<Properties> read_properties(int /*device_idx*/) {
  return not_built();
}

std::string driver_version() {
  return {};
}
PowerState read_power_state(int /*device_idx*/) {
  return {};
}

CurrentDevice::CurrentDevice(int /*device_idx*/) : status_(not_built()) {}
CurrentDevice::~CurrentDevice() = default;

Result<Stream> Stream::create() {
  return not_built();
}
Stream::~Stream() = default;
Stream::Stream(Stream&& other) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept = default;
Status Stream::synchronize() const {
  return not_built();
}
Result<bool> Stream::is_capturing() const {
  return not_built();
}

Result<Event> Event::create() {
  return not_built();
}
Event::~Event() = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(Event&& other) noexcept = default;
Status Event::record(const Stream& /*stream*/) const {
  return not_built();
}
Status Event::synchronize() const {
  return not_built();
}
Result<float> Event::milliseconds_until(const Event& /*end*/) const {
  return not_built();
}

Result<Graph> Graph::capture(const Stream& /*stream*/, const std::function<Status()>& /*enqueue*/) {
  return not_built();
}
Graph::~Graph() = default;
// Written out: clang wants the handle used where every function is seen.
Graph::Graph(Graph&& other) noexcept : handle_(other.handle_) {}
Graph& Graph::operator=(Graph&& other) noexcept = default;
Status Graph::launch(const Stream& /*stream*/) const {
  return not_built();
}

Result<PinnedBuffer> PinnedBuffer::allocate(std::size_t /*bytes*/) {
  return not_built();
}
PinnedBuffer::~PinnedBuffer() = default;
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept = default;
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept = default;

Result<DeviceBuffer> DeviceBuffer::allocate(std::size_t /*bytes*/) {
  return not_built();
}
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept = default;
Status DeviceBuffer::upload(std::span<const std::byte> /*host*/,
                            std::size_t /*offset_bytes*/,
                            const Stream& /*stream*/) const {
  return not_built();
}
Status DeviceBuffer::download(std::span<std::byte> /*host*/,
                              std::size_t /*offset_bytes*/,
                              const Stream& /*stream*/) const {
  return not_built();
}
Status DeviceBuffer::fill(std::byte /*value*/, const Stream& /*stream*/) const {
  return not_built();
}
Status fill_bytes(void* /*device_memory*/,
                  std::byte /*value*/,
                  std::size_t /*num_bytes*/,
                  const Stream& /*stream*/) {
  return not_built();
}

}  // namespace halfbyte::device
