// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "command.h"

namespace halfbyte::tool {

namespace {

[[noreturn]] void exit_with(const std::string& error) {
  fmt::print(stderr, "error: {}\n", error);
  throw CLI::RuntimeError(1);
}

}  // namespace

void exit_on_error(const Status& status) {
  if (!status.ok()) exit_with(status.to_string());
}

void exit_on_error(const TokenEvent& event) {
  if (event.finish_reason == FinishReason::kError) exit_with(event.error);
}

void exit_unless_folder(const std::string& path, std::string_view wanted) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return;
  const bool exists = std::filesystem::exists(path, error);
  exit_on_error(
      {StatusCode::kNotFound,
       fmt::format("{}: {}; want {}", path, exists ? "not a folder" : "no such folder", wanted)});
}

void write_file(const std::string& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.flush();
  if (file) return;
  exit_on_error({StatusCode::kNotFound, fmt::format("{}: cannot be written", path)});
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
