// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace halfbyte {
namespace {

std::size_t last_character(std::string_view text) {
  std::size_t start = text.size() - 1;
  while ((static_cast<std::uint8_t>(text[start]) & 0xC0U) == 0x80U)
    --start;
  return start;
}

// \w of the reference's regex: letters, marks, decimal digits and connectors.
bool is_word(char32_t code_point) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(take_code_point(text));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && begins_with_word(text.substr(last_character(text)));
}

std::size_t trailing_space_start(std::string_view text) {
  while (!text.empty()) {
    std::string_view last = text.substr(last_character(text));
    const std::size_t length = last.size();
    if (!is_white_space(take_code_point(last))) break;
    text.remove_suffix(length);
  }
  return text.size();
}

std::size_t leading_space_length(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view next = rest;
    if (!is_white_space(take_code_point(next))) break;
    rest = next;
  }
  return text.size() - rest.size();
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  // Longest first; of equal texts the lowest id.
  std::sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) {
    return std::pair(b.content.size(), a.id) < std::pair(a.content.size(), b.id);
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].content.empty()) continue;
    by_first_byte_[static_cast<std::uint8_t>(tokens_[i].content[0])].push_back(i);
  }
}

const AddedToken* AddedTokens::match(std::string_view text) const {
  for (const std::size_t i : by_first_byte_[static_cast<std::uint8_t>(text[0])]) {
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

bool AddedTokens::begins_with_special(std::string_view text) const {
  const auto& candidates = by_first_byte_[static_cast<std::uint8_t>(text[0])];
  return std::ranges::any_of(candidates, [&](std::size_t i) {
    return tokens_[i].special && text.starts_with(tokens_[i].content);
  });
}

Status AddedTokens::split(std::string_view text,
                          const std::function<Status(std::string_view, std::int32_t)>& visit,
                          bool split_special_tokens) const {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = match(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t start = i;
    std::size_t stop = i + token->content.size();
    i = stop;
    if (split_special_tokens && token->special) continue;
    const bool touches_word = ends_with_word(text.substr(0, start)) ||  //
                              begins_with_word(text.substr(stop));
    if (token->single_word && touches_word) continue;
    if (token->lstrip) start = std::max(trailing_space_start(text.substr(0, start)), taken);
    if (token->rstrip) stop += leading_space_length(text.substr(stop));
    if (start > taken) HALFBYTE_RETURN_IF_ERROR(visit(text.substr(taken, start - taken), -1));
    HALFBYTE_RETURN_IF_ERROR(visit(text.substr(start, stop - start), token->id));
    taken = i = stop;
  }
  if (taken < text.size()) HALFBYTE_RETURN_IF_ERROR(visit(text.substr(taken), -1));
  return {};
}

}  // namespace halfbyte
