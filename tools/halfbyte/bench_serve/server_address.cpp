// SPDX-License-Identifier: Apache-2.0
#include "bench_serve/server_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace halfbyte::tool {
namespace {

Status bad_url(const std::string& url) {
  return {StatusCode::kInvalidArgument,
          fmt::format("\"{}\" is no base URL: want http://HOST[:PORT][/PREFIX]", url)};
}

std::string without_version(std::string prefix) {
  while (prefix.ends_with('/'))
    prefix.pop_back();
  if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
  return prefix;
}

}  // namespace

Result<ServerAddress> parse_base_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: TLS is not supported, want http://", url));
  }
  if (!url.starts_with(kScheme)) return bad_url(url);
  const std::string rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string authority = rest.substr(0, slash);
  ServerAddress address;
  address.prefix = without_version(rest.substr(slash));
  address.port = "80";
  const std::size_t colon = authority.rfind(':');
  const std::size_t bracket = authority.rfind(']');  // [::1]
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    address.port = authority.substr(colon + 1);
    authority.resize(colon);
  }
  const bool in_brackets = authority.starts_with('[') && authority.ends_with(']');
  address.host = in_brackets ? authority.substr(1, authority.size() - 2) : authority;
  const bool is_number = !address.port.empty() && std::ranges::all_of(address.port, [](char c) {
    return c >= '0' && c <= '9';
  });
  if (address.host.empty() || !is_number) return bad_url(url);
  return address;
}

}  // namespace halfbyte::tool
