// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_CHECKPOINT_JSON_TEXT_H_
#define HALFBYTE_CHECKPOINT_JSON_TEXT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "halfbyte/result.h"

namespace halfbyte {

/// Bytes as characters.
std::string_view as_text(std::span<const std::uint8_t> bytes);

/// Parses a config file. Python writes bare NaN, Infinity and -Infinity, which are not JSON: they
/// are read as null, "no value". kCorruptData says where the text stops being JSON, or that it is
/// not an object.
Result<nlohmann::json> parse_config_json(std::string_view text);

}  // namespace halfbyte

#endif  // HALFBYTE_CHECKPOINT_JSON_TEXT_H_
