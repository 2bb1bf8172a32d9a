// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_FIELD_NOTICES_H_
#define HALFBYTE_SERVER_FIELD_NOTICES_H_

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::server {

/// Tells of each field that requests have and nobody knows, once. Names are the clients' own: so
/// many are remembered, and then no more are told. Thread-safe.
class FieldNotices {
 public:
  static constexpr std::size_t kMaxNames = 1000;

  /// `sink` takes one line each; may be null.
  explicit FieldNotices(std::function<void(std::string_view)> sink);
  /// Of one request: the first eight of them.
  void tell(const std::vector<std::string>& names);

 private:
  void tell_one(const std::string& printable);

  const std::function<void(std::string_view)> sink_;
  std::mutex mutex_;
  std::set<std::string> told_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_FIELD_NOTICES_H_
