// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "command.h"

namespace halfbyte::tool {

void exit_on_error(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "error: {}\n", status.to_string());
  throw CLI::RuntimeError(1);
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump());
}

void print_notice(std::string_view line) {
  fmt::print(stderr, "notice: {}\n", line);
}

void print_progress(std::string_view what, std::int64_t done, std::int64_t total) {
  if (isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\r{} {}/{}{}", what, done, total, done == total ? "\n" : "");
    std::fflush(stderr);
  } else if (total > 0 && done * 10 / total != (done - 1) * 10 / total) {
    fmt::print(stderr, "{} {}/{}\n", what, done, total);
  }
}

}  // namespace halfbyte::tool
