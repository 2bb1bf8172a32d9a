// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
#define HALFBYTE_TEXT_TOOL_CALL_PARSER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

/// A call that a model wrote.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

/// How a model writes calls.
///
///   kQwen3      <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
///   kDeepSeek   <|tool_calls_begin|> CALLS <|tool_calls_end|>, a call being either of
///                 <|tool_call_begin|>NAME<|tool_sep|>{...}<|tool_call_end|>            (V3.1)
///                 <|tool_call_begin|>function<|tool_sep|>NAME\n```json\n{...}\n```<|tool_call_end|>
///               with U+FF5C for | and U+2581 for _ inside the markers
enum class ToolCallFormat : std::int32_t { kQwen3, kDeepSeek };

/// The first marker of a format: a vocabulary that has it as one token writes calls so.
std::string_view tool_call_marker(ToolCallFormat format);

/// Finds tool calls in a text that comes in pieces.
///
/// The result does not depend on where the text is cut. What is no call (arguments that are no JSON
/// object, or nested deeper than 64), and a call that never ends, is content, unchanged. Around
/// calls, white space alone is dropped; text after a call loses one newline. Thread rule: one
/// thread.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallFormat format);

  struct Parsed {
    std::string content;
    std::vector<ToolCall> calls;
  };
  Parsed push(std::string_view piece);
  /// The end of the text.
  Parsed finish();

  struct Syntax;  // of a format

 private:
  bool take_content(Parsed& parsed);
  bool take_call(Parsed& parsed);
  bool skip_section_end();
  void add_content(std::string_view text, Parsed& parsed);

  const Syntax& syntax_;
  std::string pending_;
  std::string opening_;  // of the call under way, as it was written, with white space before it
  bool in_call_ = false;
  bool after_call_ = false;  // nothing but white space since a call
  bool before_text_ = true;  // the same, or since the beginning
};

}  // namespace halfbyte

#endif  // HALFBYTE_TEXT_TOOL_CALL_PARSER_H_
