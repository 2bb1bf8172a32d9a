// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_STRINGS_H_
#define HALFBYTE_TEXT_JINJA_STRINGS_H_

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace halfbyte::jinja {

/// str.strip(characters) of Python on the chosen sides; no characters: white space.
enum class Sides { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, const Value* characters, Sides sides);
/// str.replace(from, to, count); count < 0: all.
std::string replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    std::int64_t count,
                    Budget& budget);
/// Unicode's simple case mapping of every character.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First character upper, others lower; `each_word`: after everything that is not a letter.
std::string capitalize(std::string_view text, bool each_word);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_STRINGS_H_
