// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_RESULT_H_
#define HALFBYTE_RESULT_H_

#include <cassert>
#include <utility>
#include <variant>

#include "halfbyte/status.h"

namespace halfbyte {

/// A T, or the Status that says why there is none. Never holds an ok Status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!std::get<Status>(state_).ok());
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  /// Requires ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// Requires !ok(); moves the failure out.
  Status take_status() { return std::move(std::get<Status>(state_)); }
  const Status& status() const { return std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace halfbyte

#define HALFBYTE_CONCAT_INNER(a, b) a##b
#define HALFBYTE_CONCAT(a, b) HALFBYTE_CONCAT_INNER(a, b)

// HALFBYTE_ASSIGN_OR_RETURN(auto x, f()): x = f(), or return f()'s Status.
#define HALFBYTE_ASSIGN_OR_RETURN(lhs, expr) \
  HALFBYTE_ASSIGN_OR_RETURN_INNER(HALFBYTE_CONCAT(halfbyte_result_, __LINE__), lhs, expr)
#define HALFBYTE_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                                    \
  if (!result.ok()) return result.take_status();           \
  lhs = std::move(result).value()

#endif  // HALFBYTE_RESULT_H_
