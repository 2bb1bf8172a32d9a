// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_STATUS_H_
#define HALFBYTE_STATUS_H_

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

namespace halfbyte {

// Stable numbers: they are the C ABI's and the server's error table. Add at the end; never
// renumber.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,    // the caller can fix it: shape, dtype, option, call order
  kUnsupported = 2,        // valid, but nothing here can do it; the message says what and why
  kNotFound = 3,           // file, shard, tensor, request id
  kCorruptData = 4,        // bytes of a checkpoint or of the wire are wrong
  kOutOfMemory = 5,        // host or device; the message says which
  kDeviceError = 6,        // the device reported a failure; its context may be lost
  kTransportError = 7,     // a peer rank failed or did not answer in time
  kCancelled = 8,          // by the caller
  kInternal = 9,           // our bug
  kCapacityExceeded = 10,  // more tokens than the plan holds
};

/// The code's name as messages print it: "corrupt_data".
std::string_view status_code_name(StatusCode code);

/// The result of an operation that can fail and returns nothing. Ok is a null pointer, so success
/// costs one test and no allocation. Move-only. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code,
         std::string message,
         std::source_location where = std::source_location::current());

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  /// What was wanted, what came, where, and what to do; empty when ok.
  std::string_view message() const;
  /// "code_name: message", or "ok".
  std::string to_string() const;
  /// The line of halfbyte that reported it; for bug reports.
  std::source_location where() const;

  /// Puts "context: " before the message; no effect when ok. Each layer adds only what the layer
  /// below cannot know (file, layer index, request id).
  Status with_context(std::string_view context) &&;

  Status clone() const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
    std::source_location where;
  };
  std::unique_ptr<Failure> failure_;
};

}  // namespace halfbyte

#define HALFBYTE_RETURN_IF_ERROR(expr)                                        \
  do {                                                                        \
    if (::halfbyte::Status halfbyte_status = (expr); !halfbyte_status.ok()) { \
      return halfbyte_status;                                                 \
    }                                                                         \
  } while (false)

#endif  // HALFBYTE_STATUS_H_
