// SPDX-License-Identifier: Apache-2.0
#include "server/http_peer.h"

#include <poll.h>

#include <algorithm>

namespace halfbyte::server {

HangUp hang_up_of(int descriptor) {
  pollfd state{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
  if (poll(&state, 1, 0) <= 0) return HangUp::kNone;
  if ((state.revents & (POLLHUP | POLLERR)) != 0) return HangUp::kBoth;
  return (state.revents & POLLRDHUP) != 0 ? HangUp::kSending : HangUp::kNone;
}

std::string path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  const std::size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return std::string(target);
  const std::size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : std::string(target.substr(path));
}

HeaderFields cors_headers(const std::vector<std::string>& allowed, const std::string& origin) {
  if (origin.empty()) return {};
  if (std::ranges::count(allowed, "*") > 0) return {{"Access-Control-Allow-Origin", "*"}};
  if (std::ranges::count(allowed, origin) == 0) return {};
  return {{"Access-Control-Allow-Origin", origin}, {"Vary", "Origin"}};
}

}  // namespace halfbyte::server
