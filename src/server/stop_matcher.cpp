// SPDX-License-Identifier: Apache-2.0
#include "server/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace halfbyte::server {

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(piece);
  unsent_ += piece;
  std::size_t begin = std::string::npos;
  if (const std::string* match = find_match(begin)) {
    matched_ = *match;
    unsent_.resize(keep_match_ ? begin + match->size() : begin);
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

// The stop string that hits, and where it begins. What was held back before this piece has none.
const std::string* StopMatcher::find_match(std::size_t& begin) const {
  const std::string* first = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t found = unsent_.find(stop);
    if (found == std::string::npos || found > begin) continue;
    if (found == begin && stop.size() >= first->size()) continue;
    first = &stop;
    begin = found;
  }
  return first;
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
