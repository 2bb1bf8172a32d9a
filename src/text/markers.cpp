// SPDX-License-Identifier: Apache-2.0
#include "text/markers.h"

#include <algorithm>

namespace halfbyte {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

MarkerFit fit_marker(std::string_view text, std::string_view marker) {
  if (text.starts_with(marker)) return MarkerFit::kWhole;
  return marker.starts_with(text) ? MarkerFit::kPartial : MarkerFit::kNone;
}

std::size_t num_held_for(std::string_view text, std::string_view marker) {
  for (std::size_t size = std::min(marker.size() - 1, text.size()); size > 0; --size) {
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

std::string_view skip_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? text.substr(text.size()) : text.substr(begin);
}

std::string_view strip_blanks(std::string_view text) {
  const std::string_view rest = skip_blanks(text);
  return rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
}

}  // namespace halfbyte
