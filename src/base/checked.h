// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_CHECKED_H_
#define HALFBYTE_BASE_CHECKED_H_

#include <cstdint>
#include <optional>

namespace halfbyte {

/// a * b, or nothing when it does not fit. Sizes from files go through this.
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
/// `a` rounded up to a multiple of `b`.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_CHECKED_H_
