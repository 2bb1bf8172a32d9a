// SPDX-License-Identifier: Apache-2.0
//
// Sends many requests at once from one thread (Boost.Beast, in load_client.cpp alone).
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_LOAD_CLIENT_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_LOAD_CLIENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench_serve/outcome.h"
#include "bench_serve/server_address.h"
#include "halfbyte/result.h"

namespace halfbyte::tool {

struct LoadOptions {
  ServerAddress server;
  std::string path;     // "/v1/completions"
  std::string api_key;  // empty: none
  bool streams = true;
  std::int64_t max_concurrency = 0;  // 0: any number
};

struct LoadResult {
  std::vector<Outcome> outcomes;     // in the order of the requests
  std::int64_t max_under_way = 0;    // requests at a time
  std::vector<double> loop_lags_ms;  // how late the client itself was, some hundred times a second
  double cpu_share = 0.0;            // of one core that the client had, 0 to 1
};

/// Sends `bodies` as JSON, body i at arrivals[i] seconds or when fewer than max_concurrency are
/// under way, whichever is later; each on a connection of its own. A request that fails is an
/// outcome. kNotFound: the host has no address.
Result<LoadResult> run_load(const LoadOptions& options,
                            std::span<const std::string> bodies,
                            std::span<const double> arrivals);

struct HttpAnswer {
  int status = 0;
  std::string body;
};

/// One request, and nothing else meanwhile. kTransportError: no connection, or no answer.
Result<HttpAnswer> http_call(const ServerAddress& server,
                             const std::string& api_key,
                             const std::string& method,
                             const std::string& path,
                             const std::string& body = "");

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_LOAD_CLIENT_H_
