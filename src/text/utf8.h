// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_UTF8_H_
#define HALFBYTE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halfbyte {

/// What stands at the start of some bytes.
struct Utf8Scan {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind = Kind::kCharacter;
  std::size_t length = 1;  // bytes: the character, the maximal invalid subpart, or all there is
};

/// Scans one character of non-empty `bytes`. kIncomplete: more bytes could complete it.
/// Source: Unicode 15, table 3-7 (well-formed sequences) and section 3.9 (maximal subparts).
Utf8Scan scan_utf8(std::string_view bytes);

/// Offset of the first byte that is not part of a well-formed character; npos when all are.
std::size_t find_invalid_utf8(std::string_view bytes);

/// Appends `bytes` to `out`, each maximal invalid subpart as one U+FFFD, and returns how many bytes
/// were taken. An incomplete character at the end is left, unless `is_end`, where it is U+FFFD too.
std::size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string& out);

/// Takes the first character off `text`, which is well-formed and not empty.
char32_t take_code_point(std::string_view& text);
void append_code_point(char32_t code_point, std::string& out);
/// Characters of a well-formed text.
std::size_t count_code_points(std::string_view text);

/// The Unicode property White_Space.
bool is_white_space(char32_t code_point);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_UTF8_H_
