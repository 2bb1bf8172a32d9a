// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <algorithm>

namespace halfbyte {
namespace {

struct LeadByte {
  std::size_t length;  // of the whole sequence; 0: no sequence starts with this byte
  std::uint8_t low;    // range of the second byte
  std::uint8_t high;
};

LeadByte classify_lead(std::uint8_t lead) {
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::uint8_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) {
  const std::uint8_t lead = byte_at(bytes, 0);
  if (lead < 0x80) return {Utf8Scan::Kind::kCharacter, 1};
  auto [length, low, high] = classify_lead(lead);
  if (length == 0) return {Utf8Scan::Kind::kInvalid, 1};
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Scan::Kind::kIncomplete, i};
    if (byte_at(bytes, i) < low || byte_at(bytes, i) > high) {
      return {Utf8Scan::Kind::kInvalid, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Scan::Kind::kCharacter, length};
}

std::size_t find_invalid_utf8(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const Utf8Scan scan = scan_utf8(bytes.substr(i));
    if (scan.kind != Utf8Scan::Kind::kCharacter) return i;
    i += scan.length;
  }
  return std::string_view::npos;
}

std::size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string& out) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::size_t i = 0;
  while (i < bytes.size()) {
    const Utf8Scan scan = scan_utf8(bytes.substr(i));
    if (scan.kind == Utf8Scan::Kind::kIncomplete && !is_end) break;
    const bool is_character = scan.kind == Utf8Scan::Kind::kCharacter;
    out.append(is_character ? bytes.substr(i, scan.length) : kReplacement);
    i += scan.length;
  }
  return i;
}

char32_t take_code_point(std::string_view& text) {
  const std::uint8_t lead = byte_at(text, 0);
  const std::size_t length = lead < 0x80 ? 1 : classify_lead(lead).length;
  char32_t code_point = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i)
    code_point = code_point << 6 | (byte_at(text, i) & 0x3FU);
  text.remove_prefix(length);
  return code_point;
}

void append_code_point(char32_t code_point, std::string& out) {
  const auto continuation = [&](int shift) {
    out += static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0U | code_point >> 6);
    continuation(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0U | code_point >> 12);
    continuation(6);
    continuation(0);
  } else {
    out += static_cast<char>(0xF0U | code_point >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<std::uint8_t>(c) & 0xC0U) != 0x80U;
  }));
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace halfbyte
