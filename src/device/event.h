// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_DEVICE_EVENT_H_
#define HALFBYTE_DEVICE_EVENT_H_

#include "device/stream.h"
#include "halfbyte/result.h"

struct CUevent_st;  // cudaEvent_t points to it

namespace halfbyte::device {

/// Owns a CUDA event that keeps time. Move-only.
class Event {
 public:
  static Result<Event> create();
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  CUevent_st* handle() const { return handle_; }
  Status record(const Stream& stream) const;
  /// Waits until the stream has passed it.
  Status synchronize() const;
  /// Waits for `end`, then returns the milliseconds from this event to it.
  Result<float> milliseconds_until(const Event& end) const;

 private:
  explicit Event(CUevent_st* handle) : handle_(handle) {}
  CUevent_st* handle_ = nullptr;
};

}  // namespace halfbyte::device

#endif  // HALFBYTE_DEVICE_EVENT_H_
