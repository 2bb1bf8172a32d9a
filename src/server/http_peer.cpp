// SPDX-License-Identifier: Apache-2.0
#include "server/http_peer.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace halfbyte::server {
namespace {

// What is no two digits behind a % stays.
std::string decode_percent(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool is_escape = text[i] == '%' && digits.size() == 2 && problem == std::errc() &&
                           end == digits.data() + digits.size();
    decoded += is_escape ? static_cast<char>(byte) : text[i];
    if (is_escape) i += 2;
  }
  return decoded;
}

}  // namespace

HangUp hang_up_of(int descriptor) {
  pollfd state{.fd = descriptor, .events = POLLRDHUP, .revents = 0};
  if (poll(&state, 1, 0) <= 0) return HangUp::kNone;
  if ((state.revents & (POLLHUP | POLLERR)) != 0) return HangUp::kBoth;
  return (state.revents & POLLRDHUP) != 0 ? HangUp::kSending : HangUp::kNone;
}

std::string path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  const std::size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return decode_percent(target);
  const std::size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : decode_percent(target.substr(path));
}

// An answer that depends on the origin says so also where it is refused, or there is none: caches
// would give one to the other.
Cors cors_of(const std::vector<std::string>& allowed, const std::string& origin) {
  const bool may_any = std::ranges::count(allowed, "*") > 0;
  Cors cors;
  cors.may_ask = !origin.empty() && (may_any || std::ranges::count(allowed, origin) > 0);
  if (cors.may_ask) {
    cors.headers.emplace_back("Access-Control-Allow-Origin", may_any ? "*" : origin);
  }
  if (!may_any && !allowed.empty()) cors.headers.emplace_back("Vary", "Origin");
  return cors;
}

HttpResponse preflight_response(std::string requested_headers) {
  return {.status = 200,
          .body = "",
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Allow-Headers", std::move(requested_headers)},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace halfbyte::server
