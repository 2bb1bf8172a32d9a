// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace halfbyte {
namespace {

constexpr std::size_t kNumCharacters = 0x144;  // U+0000 .. U+0143: 0x100 plus 68 moved bytes

struct Spelling {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kNumCharacters> byte{};  // -1: not a spelling
};

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Spelling make_spelling() {
  Spelling spelling;
  spelling.byte.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = is_printable(byte) ? byte : next++;
    spelling.character[byte] = character;
    spelling.byte[character] = static_cast<std::int16_t>(byte);
  }
  return spelling;
}

constexpr Spelling kSpelling = make_spelling();

}  // namespace

std::string spell_byte(std::uint8_t byte) {
  std::string spelled;
  append_code_point(kSpelling.character[byte], spelled);
  return spelled;
}

std::optional<std::string> unspell(std::string_view spelled) {
  std::string bytes;
  while (!spelled.empty()) {
    const char32_t character = take_code_point(spelled);
    if (character >= kNumCharacters || kSpelling.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kSpelling.byte[character]);
  }
  return bytes;
}

}  // namespace halfbyte
