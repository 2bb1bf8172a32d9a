// SPDX-License-Identifier: Apache-2.0
#include "server/field_notices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/json.h"

namespace halfbyte::server {

FieldNotices::FieldNotices(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}

// Names are cut, and have escapes: a log takes what it is given for its own.
void FieldNotices::tell(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxOfARequest = 8, kMaxBytes = 64;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxOfARequest); ++i) {
    tell_one(
        Json(names[i].substr(0, kMaxBytes)).dump(-1, ' ', true, Json::error_handler_t::replace));
  }
}

void FieldNotices::tell_one(const std::string& printable) {
  const std::lock_guard lock(mutex_);
  if (!sink_ || told_.size() >= kMaxNames || !told_.insert(printable).second) return;
  sink_(fmt::format("requests have a field that is not known: {}", printable));
  if (told_.size() < kMaxNames) return;
  sink_(fmt::format("requests have had {} fields that are not known: no more are told", kMaxNames));
}

}  // namespace halfbyte::server
