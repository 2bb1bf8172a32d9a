// SPDX-License-Identifier: Apache-2.0
//
// What a peer asks for, and whether it is still there.
#ifndef HALFBYTE_SERVER_HTTP_PEER_H_
#define HALFBYTE_SERVER_HTTP_PEER_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace halfbyte::server {

/// What a peer has closed; what it may have sent before does not matter. A peer that is gone and
/// one that has only ended its requests look alike (kSending) until something is sent to it: then
/// the first resets the connection (kBoth).
enum class HangUp { kNone, kSending, kBoth };
/// Of a connected socket; does not wait.
HangUp hang_up_of(int descriptor);

/// "/path" of "/path?query" and of "http://host/path?query", which requests to a proxy have; with
/// %2F and the like as what they stand for.
std::string path_of(std::string_view target);

/// What a page of `origin` (empty: no page of another) may do, and is told. `allowed`: origins, or
/// "*" for any.
struct Cors {
  bool may_ask = false;
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Cors cors_of(const std::vector<std::string>& allowed, const std::string& origin);
/// The answer to a page that may ask and wants to know what, with `requested_headers`.
HttpResponse preflight_response(std::string requested_headers);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_HTTP_PEER_H_
