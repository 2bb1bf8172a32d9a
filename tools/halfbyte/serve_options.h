// SPDX-License-Identifier: Apache-2.0
//
// What `halfbyte serve` is asked for; `halfbyte plan` takes the same.
#ifndef HALFBYTE_TOOLS_HALFBYTE_SERVE_OPTIONS_H_
#define HALFBYTE_TOOLS_HALFBYTE_SERVE_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halfbyte/engine.h"
#include "server/http.h"
#include "server/model_text.h"

namespace halfbyte::tool {

// What is written to standard error beside errors: notices at kWarning, at kInfo also what goes on.
enum class LogLevel { kError, kWarning, kInfo };

struct ServeOptions {
  EngineOptions engine;
  server::HttpOptions http;
  std::vector<std::string> model_names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string access_log = "-";  // a file; "-": standard error, "none"
  LogLevel log_level = LogLevel::kInfo;
  bool log_requests = false;
  std::int64_t max_queued_requests = 4096;
  std::int64_t shutdown_timeout_s = 120;
  std::int64_t sse_keepalive_s = 15;
  std::int64_t request_timeout_s = 0;
  std::int64_t watchdog_timeout_s = 300;
  std::int64_t stream_interval = 1;
  bool constrains_output = true;
  bool protect_metrics = false;
  bool exit_on_failure = false;
  std::string admin_api_key;
  std::optional<std::uint64_t> random_seed;
  server::TextOptions text;
  bool expert_metrics = false;
  std::vector<std::string> notices;  // of options without effect, in their order
};

/// The model, and every option that says how it is served.
void add_serve_options(CLI::App& command, ServeOptions& options);

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_SERVE_OPTIONS_H_
