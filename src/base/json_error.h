// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_BASE_JSON_ERROR_H_
#define HALFBYTE_BASE_JSON_ERROR_H_

#include <string_view>

namespace halfbyte {

/// What nlohmann-json says without its "[json.exception.parse_error.101] " in front.
inline std::string_view plain_json_error(std::string_view what) {
  const std::size_t tag_end = what.find("] ");
  return tag_end == std::string_view::npos ? what : what.substr(tag_end + 2);
}

}  // namespace halfbyte

#endif  // HALFBYTE_BASE_JSON_ERROR_H_
