// SPDX-License-Identifier: Apache-2.0
#include "server/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace halfbyte::server {

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(piece);
  for (const char c : piece) {
    unsent_.push_back(c);
    const std::string* match = match_at_end();
    if (match == nullptr) continue;
    matched_ = *match;
    if (!keep_match_) unsent_.resize(unsent_.size() - match->size());
    return std::exchange(unsent_, {});
  }
  const std::size_t sent = unsent_.size() - num_held();
  std::string ready = unsent_.substr(0, sent);
  unsent_.erase(0, sent);
  return ready;
}

std::string StopMatcher::finish() {
  return std::exchange(unsent_, {});
}

// The longest stop string that ends where the text ends.
const std::string* StopMatcher::match_at_end() const {
  const std::string* longest = nullptr;
  for (const std::string& stop : stops_) {
    if (longest != nullptr && stop.size() <= longest->size()) continue;
    if (std::string_view(unsent_).ends_with(stop)) longest = &stop;
  }
  return longest;
}

std::size_t StopMatcher::num_held() const {
  const std::string_view text = unsent_;
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, text.size()); size > held; --size) {
      if (std::string_view(stop).starts_with(text.substr(text.size() - size))) held = size;
    }
  }
  return held;
}

}  // namespace halfbyte::server
