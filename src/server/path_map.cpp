// SPDX-License-Identifier: Apache-2.0
#include "server/path_map.h"

#include <cctype>
#include <string_view>

namespace halfbyte::server {
namespace {

// "messages[1]" is the beginning of "messages[1].role", not of "messages[12]".
bool is_beginning(std::string_view path, std::string_view of) {
  if (!of.starts_with(path)) return false;
  return of.size() == path.size() || of[path.size()] == '.' || of[path.size()] == '[';
}

bool is_in_word(std::string_view text, std::size_t at) {
  return at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
}

// Whole words only: "stop" is not in "stops".
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  while (at != std::string::npos) {
    const bool is_part = (at > 0 && is_in_word(text, at - 1)) || is_in_word(text, at + from.size());
    if (!is_part) text.replace(at, from.size(), to);
    at = text.find(from, at + (is_part ? from.size() : to.size()));
  }
}

}  // namespace

void PathMap::add(std::string equivalent, std::string written) {
  paths_.emplace_back(std::move(equivalent), std::move(written));
}

std::string PathMap::as_written(const std::string& path) const {
  const std::pair<std::string, std::string>* longest = nullptr;
  for (const auto& entry : paths_) {
    if (!is_beginning(entry.first, path)) continue;
    if (longest == nullptr || entry.first.size() > longest->first.size()) longest = &entry;
  }
  return longest == nullptr ? path : longest->second + path.substr(longest->first.size());
}

ApiError PathMap::as_written(ApiError error) const {
  const std::string param = as_written(error.param);
  if (param == error.param) return error;
  replace_all(error.message, error.param, param);
  error.param = param;
  return error;
}

}  // namespace halfbyte::server
