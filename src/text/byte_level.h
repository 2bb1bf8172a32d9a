// SPDX-License-Identifier: Apache-2.0
//
// The byte-level spelling: a vocabulary of bytes written with 256 printable characters. Bytes that
// are printable in Latin-1 are themselves; the others are U+0100 onwards, in order.
#ifndef HALFBYTE_TEXT_BYTE_LEVEL_H_
#define HALFBYTE_TEXT_BYTE_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace halfbyte {

/// The spelling of one byte, in UTF-8.
std::string spell_byte(std::uint8_t byte);
/// The bytes of a spelled token; empty when a character is none of the 256.
std::optional<std::string> unspell(std::string_view spelled);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_BYTE_LEVEL_H_
