// SPDX-License-Identifier: Apache-2.0
#include "halfbyte/status.h"

#include <fmt/format.h>

#include <utility>

namespace halfbyte {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kCorruptData:
      return "corrupt_data";
    case StatusCode::kOutOfMemory:
      return "out_of_memory";
    case StatusCode::kDeviceError:
      return "device_error";
    case StatusCode::kTransportError:
      return "transport_error";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal";
    case StatusCode::kCapacityExceeded:
      return "capacity_exceeded";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message, std::source_location where)
    : failure_(code == StatusCode::kOk
                   ? nullptr
                   : std::make_unique<Failure>(Failure{code, std::move(message), where})) {}

std::string_view Status::message() const {
  return ok() ? std::string_view() : failure_->message;
}

std::string Status::to_string() const {
  return ok() ? "ok" : fmt::format("{}: {}", status_code_name(failure_->code), failure_->message);
}

std::source_location Status::where() const {
  return ok() ? std::source_location() : failure_->where;
}

Status Status::with_context(std::string_view context) && {
  if (!ok()) failure_->message = fmt::format("{}: {}", context, failure_->message);
  return std::move(*this);
}

Status Status::clone() const {
  return ok() ? Status() : Status(failure_->code, failure_->message, failure_->where);
}

}  // namespace halfbyte
