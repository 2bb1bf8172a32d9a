// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_TOKENIZER_H_
#define HALFBYTE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// Byte-level BPE from a Hugging Face tokenizer.json. Immutable; any thread.
class Tokenizer {
 public:
  /// `directory` holds tokenizer.json (kNotFound) in a form that is supported (kUnsupported names
  /// the part).
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& directory);
  ~Tokenizer();

  /// Ids of a text; added tokens inside it are recognised (with `split_special_tokens` those that
  /// are not special), none are put around it. Invalid UTF-8 is kInvalidArgument.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           bool split_special_tokens = false) const;
  /// The same with the tokens that the post-processor puts around a text, unless they are there.
  std::vector<std::int32_t> add_special_tokens(std::vector<std::int32_t> ids) const;
  /// For text of strangers within a prompt that has special tokens of its own: the text with a mark
  /// inside each that it spells. Only for encode_marked().
  std::string mark_special_tokens(std::string_view text) const;
  /// encode() of a prompt with such texts in it: what has a mark inside is text, and marks are
  /// nothing. A special token of one character cannot be marked.
  Result<std::vector<std::int32_t>> encode_marked(std::string_view prompt) const;
  /// The text of ids, invalid UTF-8 replaced by U+FFFD as the reference library does.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;
  /// The bytes of one id (an added token's text); empty for an unknown id.
  std::string_view token_bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int64_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           bool split_special_tokens,
                                           bool has_marks) const;
  std::unique_ptr<Impl> impl_;
};

/// Turns ids into text as they come; never emits part of a character. Thread rule: one thread.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);
  /// The text that became complete with this id; may be empty.
  std::string push(std::int32_t id);
  /// What is left, incomplete characters as U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOKENIZER_H_
