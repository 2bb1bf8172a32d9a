// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_JINJA_LEXER_H_
#define HALFBYTE_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::jinja {

struct Token {
  enum class Kind {
    kText,        // between tags
    kBlockBegin,  // {%
    kPrintBegin,  // {{
    kTagEnd,      // %} or }}
    kName,
    kInteger,
    kFloat,
    kString,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: its value
  int line = 1;
};

/// The tokens of a template, ending in kEnd. White space as with trim_blocks and lstrip_blocks; the
/// last newline of the source is dropped. Throws Failure.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace halfbyte::jinja

#endif  // HALFBYTE_TEXT_JINJA_LEXER_H_
