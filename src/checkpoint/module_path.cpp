// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/module_path.h"

#include <array>

namespace halfbyte {
namespace {

// The longer ones first.
constexpr std::array<std::string_view, 5> kPrefixes = {
    "language_model.model.", "model.language_model.", "language_model.", "backbone.", "model."};

}  // namespace

std::string_view strip_prefix(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

std::string_view parent_path(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

}  // namespace halfbyte
