// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_ADDED_TOKENS_H_
#define HALFBYTE_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte {

/// A token that is recognised in text before anything else is done.
struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool single_word = false;  // not next to a letter, digit or underscore
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // is looked for in normalised text
  bool special = false;
};

/// Finds added tokens: leftmost first, the longest of those that begin there. Immutable; any
/// thread.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls `visit` with each part of `text` in order: a token's id, or -1 for text between tokens,
  /// which special tokens are with `split_special_tokens`. Stops at the first failure.
  Status split(std::string_view text,
               const std::function<Status(std::string_view, std::int32_t)>& visit,
               bool split_special_tokens = false) const;
  /// Whether a special token begins `text`.
  bool begins_with_special(std::string_view text) const;

 private:
  const AddedToken* match(std::string_view text) const;

  std::vector<AddedToken> tokens_;                           // longest first
  std::array<std::vector<std::size_t>, 256> by_first_byte_;  // indices, longest first
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_ADDED_TOKENS_H_
