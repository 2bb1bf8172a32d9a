// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_PATTERN_H_
#define HALFBYTE_TEXT_PATTERN_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/result.h"

namespace halfbyte {

/// A regular expression of a tokenizer.json (Oniguruma's dialect) on PCRE2. Immutable; any thread.
class Pattern {
 public:
  /// kUnsupported: PCRE2 rejects it, or would read it differently.
  static Result<Pattern> compile(std::string_view regex);
  /// Matches `text` itself.
  static Result<Pattern> literal(std::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// Appends the matches in `text` (well-formed UTF-8) and what lies between them, in order.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  static Result<Pattern> create(std::string_view source, bool is_literal);
  std::unique_ptr<Code> code_;
};

/// The regex in PCRE2's words: \s and \S are the Unicode property White_Space, which PCRE2 extends
/// by U+180E. kUnsupported: classes inside classes, and escapes that mean something else there.
Result<std::string> translate_regex(std::string_view regex);

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_PATTERN_H_
