// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace halfbyte::jinja {
namespace {

char32_t upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

template <typename Map>
std::string map_characters(std::string_view text, const Map& map) {
  std::string out;
  while (!text.empty())
    append_code_point(map(take_code_point(text)), out);
  return out;
}

// What strip() takes off: Python counts four separators among white space.
bool is_stripped(char32_t c, const Value* characters) {
  if (characters == nullptr) return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
  std::string_view set = characters->as_string();
  while (!set.empty()) {
    if (take_code_point(set) == c) return true;
  }
  return false;
}

std::string_view last_character(std::string_view text) {
  std::size_t start = text.size() - 1;
  while ((static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U)
    --start;
  return text.substr(start);
}

}  // namespace

std::string_view strip(std::string_view text, const Value* characters, Sides sides) {
  if (characters != nullptr && characters->is_none()) characters = nullptr;
  if (characters != nullptr && !characters->defined().is_string()) {
    throw type_error("strip arg must be None or str");
  }
  while (sides != Sides::kRight && !text.empty()) {
    std::string_view rest = text;
    if (!is_stripped(take_code_point(rest), characters)) break;
    text = rest;
  }
  while (sides != Sides::kLeft && !text.empty()) {
    const std::string_view last = last_character(text);
    std::string_view character = last;
    if (!is_stripped(take_code_point(character), characters)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    std::int64_t count,
                    Budget& budget) {
  std::string out;
  while (count != 0 && !(from.empty() && text.empty())) {
    const std::size_t at = from.empty() ? 0 : text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    if (from.empty()) {  // between all characters
      std::string_view rest = text;
      append_code_point(take_code_point(rest), out);
      text = rest;
    }
    --count;
    budget.step();
    if (out.size() > Budget::kMaxBytes) budget.make(out.size());
  }
  out += text;
  if (from.empty() && count != 0) out += to;
  budget.make(out.size());
  return out;
}

std::string to_upper(std::string_view text) {
  return map_characters(text, upper);
}

std::string to_lower(std::string_view text) {
  return map_characters(text, lower);
}

std::string capitalize(std::string_view text, bool each_word) {
  bool at_start = true;
  return map_characters(text, [&](char32_t c) {
    const char32_t mapped = at_start ? upper(c) : lower(c);
    at_start = each_word && !is_letter(c);
    return mapped;
  });
}

}  // namespace halfbyte::jinja
