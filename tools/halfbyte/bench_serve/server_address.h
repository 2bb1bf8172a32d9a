// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_SERVER_ADDRESS_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_SERVER_ADDRESS_H_

#include <string>

#include "halfbyte/result.h"

namespace halfbyte::tool {

struct ServerAddress {
  std::string host = "127.0.0.1";
  std::string port = "30000";
  std::string prefix;  // of every path: "" or "/some/where"
};

/// Of "http://HOST[:PORT][/PREFIX]"; a /v1 at the end is dropped, since clients differ in whether a
/// base URL has it. kUnsupported: another scheme; kInvalidArgument: no URL.
Result<ServerAddress> parse_base_url(const std::string& url);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_SERVER_ADDRESS_H_
