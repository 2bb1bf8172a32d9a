// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_JSON_H_
#define HALFBYTE_TEXT_JINJA_JSON_H_

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace halfbyte::jinja {

/// A JSON document; keys keep their order. Fails on invalid JSON and on nesting that is too deep.
Value parse_json(std::string_view text);

/// json.dumps(value, ensure_ascii=False, indent=indent): no indent writes ", " and ": " on one
/// line.
std::string dump_json(const Value& value, std::optional<std::int64_t> indent, Budget& budget);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_JSON_H_
