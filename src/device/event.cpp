// SPDX-License-Identifier: Apache-2.0
#include "device/event.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "device/cuda_status.h"

namespace halfbyte::device {

Result<Event> Event::create() {
  cudaEvent_t handle = nullptr;
  HALFBYTE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&handle), "create an event"));
  return Event(handle);
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(handle_);
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Status Event::record(const Stream& stream) const {
  return cuda_status(cudaEventRecord(handle_, stream.handle()), "record an event");
}

Status Event::synchronize() const {
  return cuda_status(cudaEventSynchronize(handle_), "wait for an event");
}

Result<float> Event::milliseconds_until(const Event& end) const {
  HALFBYTE_RETURN_IF_ERROR(end.synchronize());
  float milliseconds = 0;
  HALFBYTE_RETURN_IF_ERROR(
      cuda_status(cudaEventElapsedTime(&milliseconds, handle_, end.handle_), "read an event"));
  return milliseconds;
}

}  // namespace halfbyte::device
